// A hub's state in one SQLite file (and its "-wal" beside it).
//
// Settings, and why:
// - journal_mode WAL: a commit is one append and one sync; a killed hub's log is replayed at the next start.
// - synchronous FULL: a commit is on the disk when it returns, so that a receipt that was acknowledged survives a power
//   cut (NORMAL would survive a kill only). It costs one sync a transaction, and heartbeats make none.
// - locking_mode EXCLUSIVE: the file belongs to one hub as long as it runs, by the operating system's locks, which end
//   with the process however it ends; a second hub is refused. (Within EXCLUSIVE the WAL index is in memory: the file
//   may lie on a file system without shared memory.)
// - foreign keys are off: nothing refers to what may be deleted.
// - trusted_schema off, cell_size_check on: a file from elsewhere is not trusted.
#pragma once

#include <memory>
#include <mutex>

#include "market/sqlite.h"
#include "market/store.h"

namespace kvasir::market {

struct SqliteOptions {
    std::uint64_t max_bytes = 0;  // the file grows no larger: writing fails as on a full disk; 0: no bound
};

class SqliteStore : public Store {
  public:
    // Makes the file where there is none (its directory must be there); ":memory:" is a database of its own that goes
    // with this object. A file that is damaged, no hub's, a newer hub's or another hub's: see Store and migrate().
    static Result<std::unique_ptr<SqliteStore>> open(const std::filesystem::path& path, SqliteOptions options = {});

    Result<Remembered> load() override;
    Status apply(std::span<const Change> changes) override;
    Result<std::optional<LeaseRecord>> find_lease(const NodeId& node, std::uint64_t epoch) override;
    Status forget_leases(Instant before) override;
    Result<std::optional<SettledReceipt>> find_receipt(const NodeId& backbone, std::uint64_t sequence) override;
    Status settle(const SettledReceipt& receipt, std::span<Entry> entries) override;
    Result<Micros> balance(const OwnerId& owner) override;
    Result<std::vector<Earning>> earnings(const OwnerId& owner, std::int64_t from_day, std::int64_t to_day,
                                          std::uint32_t limit) override;
    Result<LedgerState> ledger() override;
    Status visit_entries(std::uint64_t first, const std::function<bool(const Entry&)>& visit) override;
    Status check_ledger() override;
    Status backup(const std::filesystem::path& path) override;

  private:
    explicit SqliteStore(Database database) : database_(std::move(database)) {}
    Status append(std::span<Entry> entries);
    Status visit_locked(std::uint64_t first, const std::function<bool(const Entry&)>& visit);

    std::mutex mutex_;
    Database database_;
};

}  // namespace kvasir::market
