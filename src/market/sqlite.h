// SQLite with owned handles and errors as values: what sqlite_store.cpp and its neighbours need, no more.
#pragma once

#include <sqlite3.h>

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/bytes.h"
#include "base/result.h"
#include "base/sha256.h"

namespace kvasir::market {

class Database;

// One use of a prepared statement; it is free again when this goes.
class Query {
  public:
    Query(const Database& database, sqlite3_stmt* statement) : database_(&database), statement_(statement) {}
    ~Query();
    Query(Query&& other) noexcept;
    Query& operator=(Query&&) = delete;

    void bind(int index, std::int64_t value) { sqlite3_bind_int64(statement_, index, value); }
    void bind(int index, std::string_view text);
    void bind(int index, ByteSpan blob);

    // True while there is a row.
    Result<bool> step();

    std::int64_t integer(int column) const { return sqlite3_column_int64(statement_, column); }
    std::string text(int column) const;
    ByteSpan blob(int column) const;  // until the next step
    // All of them 32 bytes; zero where the column holds something else.
    Digest digest(int column) const;

  private:
    const Database* database_;
    sqlite3_stmt* statement_;
};

// A connection. Not thread-safe.
class Database {
  public:
    static Result<Database> open(const std::filesystem::path& path, int flags);
    Database(Database&&) noexcept = default;
    Database& operator=(Database&&) noexcept = default;

    sqlite3* handle() const { return handle_.get(); }
    const std::filesystem::path& path() const { return path_; }

    // One or more statements without results.
    Status run_script(const char* sql);
    // `sql` is a literal: the statement is prepared once and kept under it.
    template <class... Values>
    Result<Query> query(const char* sql, const Values&... values) {
        Result<sqlite3_stmt*> statement = prepared(sql);
        if (!statement) return fail(statement.error());
        Query query(*this, *statement);
        int index = 0;
        (query.bind(++index, values), ...);
        return query;
    }
    // A statement whose rows nobody wants.
    template <class... Values>
    Status run(const char* sql, const Values&... values) {
        Result<Query> made = query(sql, values...);
        if (!made) return fail(made.error());
        Result<bool> row = made->step();
        if (!row) return fail(row.error());
        return {};
    }
    // The first column of the first row; 0 where there is none.
    Result<std::int64_t> integer(const char* sql);

    // What SQLite's result code means for a hub, and what to do.
    Error error(int code, std::string_view doing) const;

  private:
    struct Close {
        void operator()(sqlite3* handle) const { sqlite3_close_v2(handle); }
    };
    struct Finalize {
        void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
    };
    Database() = default;
    Result<sqlite3_stmt*> prepared(const char* sql);

    std::filesystem::path path_;
    std::unique_ptr<sqlite3, Close> handle_;
    std::unordered_map<std::string_view, std::unique_ptr<sqlite3_stmt, Finalize>> statements_;
};

// BEGIN IMMEDIATE … COMMIT; what was not committed is rolled back.
class Transaction {
  public:
    static Result<Transaction> begin(Database& database);
    ~Transaction();
    Transaction(Transaction&& other) noexcept;
    Transaction& operator=(Transaction&&) = delete;
    Status commit();

  private:
    explicit Transaction(Database& database) : database_(&database) {}
    Database* database_;
};

}  // namespace kvasir::market
