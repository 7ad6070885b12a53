#include "market/sqlite_schema.h"

#include <array>

namespace kvasir::market {
namespace {

constexpr std::int64_t kApplicationId = 0x4b564842;  // "KVHB"

// Migration i makes version i + 1. Never change one that was released: add another.
constexpr std::array kMigrations = {
    R"sql(
CREATE TABLE meta(name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
INSERT INTO meta VALUES('secret', randomblob(32));

CREATE TABLE offer(model BLOB PRIMARY KEY, name TEXT NOT NULL, target INTEGER NOT NULL, layers BLOB NOT NULL)
    WITHOUT ROWID;
CREATE TABLE node(id BLOB PRIMARY KEY, key BLOB NOT NULL, owner BLOB NOT NULL, roles INTEGER NOT NULL,
    registered INTEGER NOT NULL, generation INTEGER NOT NULL, revoked INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE worker(id BLOB PRIMARY KEY, epoch INTEGER NOT NULL, failures INTEGER NOT NULL, failed INTEGER NOT NULL,
    barred_until INTEGER NOT NULL, moved INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE lease(node BLOB NOT NULL, epoch INTEGER NOT NULL, model BLOB NOT NULL, owner BLOB NOT NULL,
    site TEXT NOT NULL, granted INTEGER NOT NULL, priced INTEGER NOT NULL, pieces BLOB NOT NULL,
    ended_as INTEGER NOT NULL, ended INTEGER NOT NULL, PRIMARY KEY(node, epoch)) WITHOUT ROWID;
CREATE INDEX lease_ended ON lease(ended) WHERE ended_as <> 0;
CREATE TABLE load(model BLOB NOT NULL, layer INTEGER NOT NULL, at INTEGER NOT NULL, rows BLOB NOT NULL,
    misses BLOB NOT NULL, PRIMARY KEY(model, layer)) WITHOUT ROWID;

CREATE TABLE receipt(backbone BLOB NOT NULL, sequence INTEGER NOT NULL, digest BLOB NOT NULL, at INTEGER NOT NULL,
    paid INTEGER NOT NULL, PRIMARY KEY(backbone, sequence)) WITHOUT ROWID;
CREATE TABLE entry(number INTEGER PRIMARY KEY, at INTEGER NOT NULL, owner BLOB NOT NULL, worker BLOB NOT NULL,
    backbone BLOB NOT NULL, sequence INTEGER NOT NULL, line INTEGER NOT NULL, model BLOB NOT NULL,
    layer INTEGER NOT NULL, first INTEGER NOT NULL, count INTEGER NOT NULL, epoch INTEGER NOT NULL,
    rows INTEGER NOT NULL, expert_bytes INTEGER NOT NULL, rate INTEGER NOT NULL, amount INTEGER NOT NULL,
    hash BLOB NOT NULL, CHECK(typeof(amount) = 'integer'));
CREATE INDEX entry_owner ON entry(owner, at);
-- A sum beyond 64 bits would become a floating-point number: refused instead.
CREATE TABLE balance(owner BLOB PRIMARY KEY, amount INTEGER NOT NULL CHECK(typeof(amount) = 'integer')) WITHOUT ROWID;

CREATE TRIGGER entry_kept BEFORE UPDATE ON entry BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER entry_stays BEFORE DELETE ON entry BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER receipt_kept BEFORE UPDATE ON receipt BEGIN SELECT RAISE(ABORT, 'receipts are append-only'); END;
CREATE TRIGGER receipt_stays BEFORE DELETE ON receipt BEGIN SELECT RAISE(ABORT, 'receipts are append-only'); END;
)sql",
};

}  // namespace

Status migrate(Database& database) {
    Result<Transaction> transaction = Transaction::begin(database);
    if (!transaction) return fail(transaction.error());
    Result<std::int64_t> application = database.integer("PRAGMA application_id");
    if (!application) return fail(application.error());
    Result<std::int64_t> version = database.integer("PRAGMA user_version");
    if (!version) return fail(version.error());
    Result<std::int64_t> tables = database.integer("SELECT count(*) FROM sqlite_schema");
    if (!tables) return fail(tables.error());
    if (*application != kApplicationId && (*application != 0 || *tables != 0)) {
        return fail(ErrorKind::invalid, "{}: this is a database, but not a hub's: name another file",
                    database.path().string());
    }
    const auto known = static_cast<std::int64_t>(kMigrations.size());
    if (*version > known) {
        return fail(ErrorKind::unsupported, "{}: was written by a newer hub (version {}, this one knows {}): update",
                    database.path().string(), *version, known);
    }
    for (std::int64_t next = *version; next < known; ++next) {
        Status done = database.run_script(kMigrations[static_cast<std::size_t>(next)]);
        if (!done) return done;
    }
    const std::string mark = fmt::format("PRAGMA application_id = {}; PRAGMA user_version = {}", kApplicationId, known);
    if (Status marked = database.run_script(mark.c_str()); !marked) return marked;
    return transaction->commit();
}

}  // namespace kvasir::market
