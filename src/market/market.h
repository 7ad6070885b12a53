// The market itself: who leases which experts, at which rate, who serves them, and what is paid for the work. The rules
// are rules.h's, in words docs/market.md; the state is a Store's.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "market/choice.h"
#include "market/lease_book.h"
#include "market/receipt.h"
#include "market/registry.h"
#include "market/store.h"

namespace kvasir::market {

struct NodeView {
    View view;
    std::vector<Piece> held;  // by the caller's lease of this model
};

struct Grant {
    LeaseRecord lease;          // as it is now; epoch 0: there is none, nothing was granted
    std::vector<Wish> refused;  // somebody was faster: look again
    Duration valid_for{};       // without a heartbeat
};

enum class RenewalState : std::uint8_t {
    valid,    // go on
    changed,  // it has another epoch now, with other rates or fewer pieces: fetch it with Market::lease()
    lost,     // there is none: enrol again
};
struct Renewal {
    RenewalState state = RenewalState::lost;
    std::uint64_t epoch = 0;
    Duration valid_for{};
    bool review = false;  // something pays so much better that a look at the view may be worth it
};

struct ProbeReport {
    NodeId node{};
    std::uint64_t epoch = 0;
    std::vector<Piece> passed;  // a leased piece that lies wholly within one of them is proved
    std::vector<Piece> failed;  // any one ends the lease
};

struct LoadReport {
    struct Part {
        std::uint32_t first = 0;
        std::uint32_t count = 0;
        std::uint64_t rows = 0;    // pairs that were asked for, since the last report; spread evenly over the experts
        std::uint64_t misses = 0;  // of them, those for which no worker answered in time
    };
    ModelId model{};
    std::uint32_t layer = 0;
    std::vector<Part> parts;
};

// Why a line of a receipt was or wasn't paid.
enum class LineOutcome : std::uint8_t {
    paid,
    self_dealing,   // worker and backbone have one owner
    unknown_lease,  // no such epoch of such a node, or it is too long ago
    not_leased,     // the experts are not within one piece of that epoch, or it is of another model
    convicted,      // the epoch ended by a failed probe
    too_large,      // more than a ledger's number holds
};
const char* name(LineOutcome outcome);

struct Settlement {
    bool repeated = false;  // it was settled before; nothing changed, `lines` is empty
    Micros paid = 0;
    std::vector<LineOutcome> lines;
};

// A run of experts of one layer that are alike in every number.
struct DemandRow {
    Piece piece;
    std::uint32_t serving = 0;  // proved replicas: distinct owners and sites
    std::uint32_t leased = 0;   // those and the ones still to be proved
    std::uint32_t wanted = 0;
    Rate rate = 0;  // for one replica more
    Thousandths popularity = 0;
    double rows_per_s = 0;
    double misses_per_s = 0;
    bool same(const DemandRow& other) const;
};

struct MarketStats {
    std::size_t leases = 0;
    std::uint64_t cells = 0;
    std::uint64_t cells_missing_leases = 0;   // fewer leased than wanted
    std::uint64_t cells_missing_serving = 0;  // fewer serving than the target
};

// Thread-safe: one lock, held for microseconds, and for a transaction where something is written. Everything a node
// does concerns its own lease: the caller's. Errors: ErrorKind::usage (not allowed), ErrorKind::invalid (nonsense),
// ErrorKind::unavailable (not now; the message says when), and the store's own.
class Market {
  public:
    // Takes up what the store remembers; leases then stand for rules.grace at least. `store`, `registry` and `clock`
    // outlive it.
    static Result<std::unique_ptr<Market>> open(Store& store, const Registry& registry, const Clock& clock,
                                                const Remembered& remembered, Rules rules = {});

    // Puts a model on the market, or changes its target.
    Status offer(const Offer& offer);
    std::vector<std::shared_ptr<const Offer>> offers() const;
    const Rules& rules() const { return rules_; }

    // For the caller at this site (site_of() of the address it is seen at).
    Result<NodeView> view(const Caller& caller, const std::string& site, const ModelId& model);
    // Replaces the caller's lease by one of these experts: all of them or what of them is still to be had. What it
    // holds and wishes again it keeps, at the old rate. To give up any is a move: refused within rules.dwell of the
    // last. The same request again changes nothing.
    Result<Grant> enrol(const Caller& caller, const std::string& site, const ModelId& model,
                        std::span<const Wish> wishes);
    // A heartbeat. Writes nothing, but when the rates are due to be set anew.
    Renewal renew(const Caller& caller, const std::string& site, std::uint64_t epoch);
    Result<Grant> lease(const Caller& caller);
    // Ends the caller's lease politely. No lease, or a later epoch: nothing happens.
    Status release(const Caller& caller, std::uint64_t epoch);
    // Ends a node's lease at once; by an admin, or by the hub itself where there is no caller.
    Status evict(const std::optional<Caller>& by, const NodeId& node);

    // By backbones and admins, never of a node of their own owner.
    Status report_probe(const Caller& caller, const ProbeReport& report);
    // By backbones.
    Status report_load(const Caller& caller, const LoadReport& report);
    // A signed receipt; whoever hands it in.
    Result<Settlement> settle(ByteSpan receipt, const Signature& signature);

    // To be called once a heartbeat: lets leases and proofs run out, popularity fade and rates follow. More than two
    // heartbeats between two calls count as the hub's own absence, and give every lease rules.grace.
    Status tick();

    Result<std::vector<DemandRow>> demand(const ModelId& model) const;
    MarketStats stats() const;

  private:
    Market(Store& store, const Registry& registry, const Clock& clock, Rules rules);
    Status take_up(const Remembered& remembered);

    // The hub's time, which never runs backwards.
    Instant now();
    Demand* find(const ModelId& model) const;
    WorkerRecord worker(const NodeId& node) const;
    Grant grant_of(const LiveLease* lease, Instant now) const;

    // What enrol() found of each wish.
    struct Sorted {
        std::vector<Piece> pieces;  // granted or held
        std::vector<Wish> refused;
    };
    Result<std::vector<Wish>> checked(const Demand& demand, std::span<const Wish> wishes) const;
    Sorted sort_wishes(const Demand& demand, const LiveLease* live, const std::vector<std::uint8_t>& marks,
                       std::span<const Wish> wishes) const;
    std::vector<LeasedPiece> compose(const Demand& demand, const LiveLease* live, std::vector<Piece> pieces,
                                     Instant now) const;
    Status check_move(const LiveLease* live, const std::vector<LeasedPiece>& pieces, bool same_model,
                      WorkerRecord& worker, Instant now) const;
    // Writes the node's next epoch, and the end of the one before, then puts it in the book.
    Status put_epoch(const LiveLease* live, LeaseRecord record, Demand* demand, WorkerRecord worker, Instant now);
    Status end_lease(const NodeId& node, LeaseEnd end, Instant now);
    Status convict(const NodeId& node, Instant now);
    bool reprice_lease(LiveLease& lease, Instant now);
    bool worth_a_review(const LiveLease& lease, Instant now);

    LineOutcome settle_line(const Receipt& receipt, std::size_t line, const Demand& demand, const OwnerId& payer,
                            Instant now, std::vector<Entry>& entries, Status& failed);
    void prove_by_receipt(const Receipt& receipt, const std::vector<LineOutcome>& lines, Instant now);

    void pause(Duration gap, Instant now);
    void check_leases(Instant now, std::vector<Change>& changes);
    bool check_pieces(LiveLease& lease, Instant now);
    Status save_load(Instant now);

    Store& store_;
    const Registry& registry_;
    const Clock& clock_;
    Rules rules_;
    mutable std::mutex mutex_;
    std::vector<std::unique_ptr<Demand>> demands_;
    std::unordered_map<NodeId, WorkerRecord, DigestHash> workers_;
    LeaseBook book_;
    Instant now_{};
    Instant ticked_{};
    Instant saved_{};
    Instant forgot_{};
    std::uint32_t reviews_left_ = 0;      // until the next tick
    std::vector<Change> unwritten_ends_;  // of leases, where the store failed
};

}  // namespace kvasir::market
