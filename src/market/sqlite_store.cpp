#include "market/sqlite_store.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/files.h"
#include "market/record_bytes.h"
#include "market/sqlite_schema.h"

namespace kvasir::market {
namespace {

std::int64_t stored(Instant time) {
    return time.time_since_epoch().count();
}
Instant instant(std::int64_t value) {
    return Instant(Duration(value));
}

Status save(Database& database, const Offer& offer) {
    return database.run("INSERT OR REPLACE INTO offer VALUES(?,?,?,?)", ByteSpan(offer.model()),
                        std::string_view(offer.name()), std::int64_t{offer.target()},
                        ByteSpan(bytes_of(offer.layers())));
}

Status save(Database& database, const NodeRecord& node) {
    return database.run("INSERT OR REPLACE INTO node VALUES(?,?,?,?,?,?,?)", ByteSpan(node.id), ByteSpan(node.key),
                        ByteSpan(node.owner), std::int64_t{node.roles}, stored(node.registered),
                        std::int64_t{node.generation}, std::int64_t{node.revoked});
}

Status save(Database& database, const WorkerRecord& worker) {
    return database.run("INSERT OR REPLACE INTO worker VALUES(?,?,?,?,?,?)", ByteSpan(worker.id),
                        static_cast<std::int64_t>(worker.epoch), std::int64_t{worker.failures}, stored(worker.failed),
                        stored(worker.barred_until), stored(worker.moved));
}

Status save(Database& database, const LeaseRecord& lease) {
    return database.run("INSERT OR REPLACE INTO lease VALUES(?,?,?,?,?,?,?,?,?,?)", ByteSpan(lease.node),
                        static_cast<std::int64_t>(lease.epoch), ByteSpan(lease.model), ByteSpan(lease.owner),
                        std::string_view(lease.site), stored(lease.granted), stored(lease.priced),
                        ByteSpan(bytes_of(lease.pieces)), static_cast<std::int64_t>(lease.end), stored(lease.ended));
}

Status save(Database& database, const LoadRecord& load) {
    return database.run("INSERT OR REPLACE INTO load VALUES(?,?,?,?,?)", ByteSpan(load.model), std::int64_t{load.layer},
                        stored(load.at), std::as_bytes(std::span(load.rows)), std::as_bytes(std::span(load.misses)));
}

std::vector<float> floats(ByteSpan bytes) {
    std::vector<float> values(bytes.size() / sizeof(float));
    if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
    return values;
}

constexpr const char* kLeaseColumns =
    "SELECT node, epoch, model, owner, site, granted, priced, pieces, ended_as, ended FROM lease WHERE ended_as = 0";
constexpr const char* kOneLease =
    "SELECT node, epoch, model, owner, site, granted, priced, pieces, ended_as, ended FROM lease "
    "WHERE node = ? AND epoch = ?";

Result<LeaseRecord> lease_of(const Query& row) {
    LeaseRecord lease{.node = row.digest(0),
                      .epoch = static_cast<std::uint64_t>(row.integer(1)),
                      .model = row.digest(2),
                      .owner = row.digest(3),
                      .site = row.text(4),
                      .granted = instant(row.integer(5)),
                      .priced = instant(row.integer(6)),
                      .pieces = {},
                      .end = static_cast<LeaseEnd>(row.integer(8)),
                      .ended = instant(row.integer(9))};
    Result<std::vector<LeasedPiece>> pieces = leased_pieces(row.blob(7));
    if (!pieces) return fail(pieces.error());
    lease.pieces = std::move(*pieces);
    return lease;
}

// Calls `take` with every row.
template <class Take>
Status each_row(Result<Query> query, Take take) {
    if (!query) return fail(query.error());
    while (true) {
        Result<bool> row = query->step();
        if (!row) return fail(row.error());
        if (!*row) return {};
        if (Status taken = take(*query); !taken) return taken;
    }
}

Status load_nodes(Database& database, Remembered& all) {
    Status nodes = each_row(database.query("SELECT id, key, owner, roles, registered, generation, revoked FROM node"),
                            [&](const Query& row) -> Status {
                                all.nodes.push_back({.id = row.digest(0),
                                                     .key = row.digest(1),
                                                     .owner = row.digest(2),
                                                     .roles = static_cast<Roles>(row.integer(3)),
                                                     .registered = instant(row.integer(4)),
                                                     .generation = static_cast<std::uint32_t>(row.integer(5)),
                                                     .revoked = row.integer(6) != 0});
                                return {};
                            });
    if (!nodes) return nodes;
    return each_row(database.query("SELECT id, epoch, failures, failed, barred_until, moved FROM worker"),
                    [&](const Query& row) -> Status {
                        all.workers.push_back({.id = row.digest(0),
                                               .epoch = static_cast<std::uint64_t>(row.integer(1)),
                                               .failures = static_cast<std::uint32_t>(row.integer(2)),
                                               .failed = instant(row.integer(3)),
                                               .barred_until = instant(row.integer(4)),
                                               .moved = instant(row.integer(5))});
                        return {};
                    });
}

Status load_offers(Database& database, Remembered& all) {
    Status offers =
        each_row(database.query("SELECT model, name, target, layers FROM offer"), [&](const Query& row) -> Status {
            Result<std::vector<OfferLayer>> layers = offer_layers(row.blob(3));
            if (!layers) return fail(layers.error());
            Result<Offer> offer = Offer::create(row.digest(0), row.text(1), static_cast<std::uint32_t>(row.integer(2)),
                                                std::move(*layers));
            if (!offer) return fail(offer.error());
            all.offers.push_back(std::move(*offer));
            return {};
        });
    if (!offers) return offers;
    return each_row(database.query("SELECT model, layer, at, rows, misses FROM load"), [&](const Query& row) -> Status {
        all.loads.push_back({.model = row.digest(0),
                             .layer = static_cast<std::uint32_t>(row.integer(1)),
                             .at = instant(row.integer(2)),
                             .rows = floats(row.blob(3)),
                             .misses = floats(row.blob(4))});
        return {};
    });
}

Status configure(Database& database, const SqliteOptions& options) {
    // A hub that is just ending may need a moment to let go.
    sqlite3_busy_timeout(database.handle(), 500);
    Status set = database.run_script(
        "PRAGMA locking_mode = EXCLUSIVE; PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON;"
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;");
    if (!set) return set;
    if (options.max_bytes == 0) return {};
    Result<std::int64_t> page = database.integer("PRAGMA page_size");
    if (!page) return fail(page.error());
    const std::string bound =
        fmt::format("PRAGMA max_page_count = {}", options.max_bytes / static_cast<std::uint64_t>(*page));
    return database.run_script(bound.c_str());
}

Status check_undamaged(Database& database) {
    Result<Query> query = database.query("PRAGMA quick_check(1)");
    if (!query) return fail(query.error());
    Result<bool> row = query->step();
    if (!row) return fail(row.error());
    if (*row && query->text(0) == "ok") return {};
    return fail(ErrorKind::invalid, "{}: this database is damaged ({}): put a backup in its place",
                database.path().string(), *row ? query->text(0) : "no answer");
}

}  // namespace

Result<std::unique_ptr<SqliteStore>> SqliteStore::open(const std::filesystem::path& path, SqliteOptions options) {
    Result<Database> database = Database::open(path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX);
    if (!database) return fail(database.error());
    if (Status ok = configure(*database, options); !ok) return fail(ok.error());
    // The first write takes the lock that keeps other hubs out.
    if (Status ok = migrate(*database); !ok) return fail(ok.error());
    if (Status ok = check_undamaged(*database); !ok) return fail(ok.error());
    return std::unique_ptr<SqliteStore>(new SqliteStore(std::move(*database)));
}

Result<Remembered> SqliteStore::load() {
    std::lock_guard lock(mutex_);
    Remembered all;
    Status secret =
        each_row(database_.query("SELECT value FROM meta WHERE name = 'secret'"), [&](const Query& row) -> Status {
            all.secret = row.text(0);
            return {};
        });
    if (!secret) return fail(secret.error());
    if (all.secret.size() != 32) return fail(ErrorKind::invalid, "{}: its secret is gone", database_.path().string());
    if (Status ok = load_nodes(database_, all); !ok) return fail(ok.error());
    if (Status ok = load_offers(database_, all); !ok) return fail(ok.error().within(database_.path().string()));
    Status leases = each_row(database_.query(kLeaseColumns), [&](const Query& row) -> Status {
        Result<LeaseRecord> lease = lease_of(row);
        if (!lease) return fail(lease.error());
        all.leases.push_back(std::move(*lease));
        return {};
    });
    if (!leases) return fail(leases.error().within(database_.path().string()));
    return all;
}

Status SqliteStore::apply(std::span<const Change> changes) {
    std::lock_guard lock(mutex_);
    Result<Transaction> transaction = Transaction::begin(database_);
    if (!transaction) return fail(transaction.error());
    for (const Change& change : changes) {
        Status saved = std::visit([&](const auto& record) { return save(database_, record); }, change);
        if (!saved) return saved;
    }
    return transaction->commit();
}

Result<std::optional<LeaseRecord>> SqliteStore::find_lease(const NodeId& node, std::uint64_t epoch) {
    std::lock_guard lock(mutex_);
    std::optional<LeaseRecord> found;
    Status done = each_row(database_.query(kOneLease, ByteSpan(node), static_cast<std::int64_t>(epoch)),
                           [&](const Query& row) -> Status {
                               Result<LeaseRecord> lease = lease_of(row);
                               if (!lease) return fail(lease.error());
                               found = std::move(*lease);
                               return {};
                           });
    if (!done) return fail(done.error());
    return found;
}

Status SqliteStore::forget_leases(Instant before) {
    std::lock_guard lock(mutex_);
    return database_.run("DELETE FROM lease WHERE ended_as <> 0 AND ended < ?", stored(before));
}

namespace {

// Makes a finished copy durable and gives it its name.
Status put_in_place(const std::filesystem::path& part, const std::filesystem::path& path) {
    const int descriptor = ::open(part.c_str(), O_RDONLY | O_CLOEXEC);
    const bool synced = descriptor >= 0 && ::fsync(descriptor) == 0;
    const int error = errno;
    if (descriptor >= 0) ::close(descriptor);
    if (!synced) return fail(ErrorKind::io, "{}: cannot write the backup: {}", part.string(), std::strerror(error));
    if (::link(part.c_str(), path.c_str()) != 0) {
        return fail(ErrorKind::usage, "{}: cannot give the backup this name: {}", path.string(), std::strerror(errno));
    }
    return {};
}

}  // namespace

Status SqliteStore::backup(const std::filesystem::path& path) {
    if (Status ok = check_directory_of(path); !ok) return ok;
    std::error_code failed;
    if (std::filesystem::exists(path, failed)) {
        return fail(ErrorKind::usage, "{}: is there already: name a file that is not", path.string());
    }
    const std::filesystem::path part = path.string() + ".part";
    std::filesystem::remove(part, failed);
    Status copied = [&]() -> Status {
        Result<Database> copy = Database::open(part, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE);
        if (!copy) return fail(copy.error());
        // The hub works on between the steps; what it changes then is copied too.
        constexpr int kPagesAtOnce = 256;
        std::unique_lock lock(mutex_);
        sqlite3_backup* backup = sqlite3_backup_init(copy->handle(), "main", database_.handle(), "main");
        if (backup == nullptr) return fail(copy->error(sqlite3_errcode(copy->handle()), "copying to it"));
        int code = SQLITE_OK;
        while ((code = sqlite3_backup_step(backup, kPagesAtOnce)) == SQLITE_OK) {
            lock.unlock();
            lock.lock();
        }
        sqlite3_backup_finish(backup);
        if (code != SQLITE_DONE) return fail(copy->error(code, "copying to it"));
        return {};
    }();
    if (copied) copied = put_in_place(part, path);
    std::filesystem::remove(part, failed);
    return copied;
}

}  // namespace kvasir::market
