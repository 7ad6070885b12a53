// Where a hub's state lives. The market's code knows this interface only; SQLite stands behind it (sqlite_store.h), and
// another database may.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "market/records.h"

namespace kvasir::market {

// All that is needed to go on after a restart: everything but the ledger and leases that have ended.
struct Remembered {
    std::string secret;  // 32 random bytes, made with the store; tokens are authenticated with it
    std::vector<Offer> offers;
    std::vector<NodeRecord> nodes;
    std::vector<WorkerRecord> workers;
    std::vector<LeaseRecord> leases;  // live
    std::vector<LoadRecord> loads;
};

struct Earning {
    NodeId worker{};
    ModelId model{};
    Piece piece;
    std::int64_t day = 0;  // days since 1970-01-01, UTC
    std::uint64_t rows = 0;
    Micros amount = 0;
    bool operator==(const Earning&) const = default;
};

struct LedgerState {
    std::uint64_t entries = 0;
    Digest head{};  // hash of the last entry
    Micros total = 0;
};

// Every method that changes something does it wholly or not at all, and has it on the disk when it returns: a kill or a
// power cut afterwards loses nothing. Thread-safe. Errors: ErrorKind::io (a full disk), ErrorKind::invalid (damage),
// ErrorKind::unavailable (another hub has it), ErrorKind::internal.
class Store {
  public:
    virtual ~Store() = default;

    virtual Result<Remembered> load() = 0;
    virtual Status apply(std::span<const Change> changes) = 0;
    // Any epoch, live or ended; none if it never was or is forgotten.
    virtual Result<std::optional<LeaseRecord>> find_lease(const NodeId& node, std::uint64_t epoch) = 0;
    // Drops leases that ended before `before`. Receipts and the ledger stay for good.
    virtual Status forget_leases(Instant before) = 0;

    virtual Result<std::optional<SettledReceipt>> find_receipt(const NodeId& backbone, std::uint64_t sequence) = 0;
    // The receipt and its entries in one step; fills in number, previous and hash. Refuses (ErrorKind::internal) a
    // receipt that is there already.
    virtual Status settle(const SettledReceipt& receipt, std::span<Entry> entries) = 0;

    virtual Result<Micros> balance(const OwnerId& owner) = 0;
    // Per worker, piece and day, from `from_day` to `to_day` (inclusive), at most `limit` rows, newest day first.
    virtual Result<std::vector<Earning>> earnings(const OwnerId& owner, std::int64_t from_day, std::int64_t to_day,
                                                  std::uint32_t limit) = 0;
    virtual Result<LedgerState> ledger() = 0;
    // Entries from number `first` on, in order, until `visit` says false.
    virtual Status visit_entries(std::uint64_t first, const std::function<bool(const Entry&)>& visit) = 0;
    // Recomputes everything: the chain of hashes, and every balance from the entries. ErrorKind::mismatch says what.
    virtual Status check_ledger() = 0;

    // A consistent copy, made while the hub runs; `path` appears when it is complete. An existing file is refused.
    virtual Status backup(const std::filesystem::path& path) = 0;
};

}  // namespace kvasir::market
