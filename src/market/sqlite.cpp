#include "market/sqlite.h"

#include <algorithm>
#include <utility>

namespace kvasir::market {

Query::~Query() {
    if (statement_ == nullptr) return;
    sqlite3_reset(statement_);
    sqlite3_clear_bindings(statement_);
}

Query::Query(Query&& other) noexcept
    : database_(other.database_), statement_(std::exchange(other.statement_, nullptr)) {}

void Query::bind(int index, std::string_view text) {
    sqlite3_bind_text(statement_, index, text.data(), static_cast<int>(text.size()), SQLITE_TRANSIENT);
}

void Query::bind(int index, ByteSpan blob) {
    // A null pointer would bind NULL.
    const void* data = blob.empty() ? "" : static_cast<const void*>(blob.data());
    sqlite3_bind_blob(statement_, index, data, static_cast<int>(blob.size()), SQLITE_TRANSIENT);
}

Result<bool> Query::step() {
    const int code = sqlite3_step(statement_);
    if (code == SQLITE_ROW) return true;
    if (code == SQLITE_DONE) return false;
    return fail(database_->error(code, "using it"));
}

std::string Query::text(int column) const {
    const ByteSpan bytes = blob(column);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

ByteSpan Query::blob(int column) const {
    const void* data = sqlite3_column_blob(statement_, column);
    return {static_cast<const std::byte*>(data), static_cast<std::size_t>(sqlite3_column_bytes(statement_, column))};
}

Digest Query::digest(int column) const {
    Digest digest{};
    const ByteSpan bytes = blob(column);
    if (bytes.size() == digest.size()) std::copy(bytes.begin(), bytes.end(), digest.begin());
    return digest;
}

Result<Database> Database::open(const std::filesystem::path& path, int flags) {
    Database database;
    database.path_ = path;
    sqlite3* handle = nullptr;
    const int code = sqlite3_open_v2(path.c_str(), &handle, flags | SQLITE_OPEN_EXRESCODE, nullptr);
    database.handle_.reset(handle);
    if (code != SQLITE_OK) return fail(database.error(code, "opening it"));
    return database;
}

Status Database::run_script(const char* sql) {
    const int code = sqlite3_exec(handle(), sql, nullptr, nullptr, nullptr);
    if (code != SQLITE_OK) return fail(error(code, "using it"));
    return {};
}

Result<sqlite3_stmt*> Database::prepared(const char* sql) {
    auto found = statements_.find(sql);
    if (found != statements_.end()) return found->second.get();
    sqlite3_stmt* statement = nullptr;
    const int code = sqlite3_prepare_v3(handle(), sql, -1, SQLITE_PREPARE_PERSISTENT, &statement, nullptr);
    if (code != SQLITE_OK) return fail(error(code, "using it"));
    statements_.emplace(sql, statement);
    return statement;
}

Result<std::int64_t> Database::integer(const char* sql) {
    Result<Query> made = query(sql);
    if (!made) return fail(made.error());
    Result<bool> row = made->step();
    if (!row) return fail(row.error());
    return *row ? made->integer(0) : 0;
}

Error Database::error(int code, std::string_view doing) const {
    const char* said = handle_ ? sqlite3_errmsg(handle()) : sqlite3_errstr(code);
    auto make = [&](ErrorKind kind, std::string_view advice) {
        return Error{kind, fmt::format("{}: {} ({}, {})", path_.string(), advice, said, doing)};
    };
    switch (code & 0xff) {
        case SQLITE_BUSY:
        case SQLITE_LOCKED:
            return make(ErrorKind::unavailable, "another hub is using this database: one hub a database");
        case SQLITE_FULL:
            return make(ErrorKind::io,
                        "no space is left for the hub's state; nothing of this change was kept: free "
                        "some disk space");
        case SQLITE_CORRUPT:
        case SQLITE_NOTADB:
            return make(ErrorKind::invalid, "this database is damaged or none: put a backup in its place");
        case SQLITE_CANTOPEN:
        case SQLITE_PERM:
        case SQLITE_READONLY:
        case SQLITE_IOERR:
        case SQLITE_AUTH:
            return make(ErrorKind::io, "the hub's state can't be read or written");
        default:
            return make(ErrorKind::internal, "the hub's state can't be used");
    }
}

Result<Transaction> Transaction::begin(Database& database) {
    if (Status begun = database.run("BEGIN IMMEDIATE"); !begun) return fail(begun.error());
    return Transaction(database);
}

Transaction::~Transaction() {
    // A failed statement may have rolled back by itself.
    if (database_ != nullptr && sqlite3_get_autocommit(database_->handle()) == 0) {
        static_cast<void>(database_->run("ROLLBACK"));
    }
}

Transaction::Transaction(Transaction&& other) noexcept : database_(std::exchange(other.database_, nullptr)) {}

Status Transaction::commit() {
    if (Status done = database_->run("COMMIT"); !done) return done;
    database_ = nullptr;
    return {};
}

}  // namespace kvasir::market
