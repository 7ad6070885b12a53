// The live leases in memory: found by node, by owner and by site, and counted in the demand of their models.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "market/demand.h"
#include "market/registry.h"

namespace kvasir::market {

// A node's lease and what is known of it in memory only.
struct LiveLease {
    LeaseRecord record;
    Demand* demand = nullptr;
    Instant expires{};
    Instant next_check{};  // no piece's proof or time to be proved ends before
};

// At most one lease a node; of one owner, and at one site, at most one lease of a cell (the market sees to that).
// Not thread-safe.
class LeaseBook {
  public:
    // Adds or replaces the node's lease. `next_check` is computed. Pointers to leases are invalid after any change.
    void put(LiveLease lease, const Rules& rules);
    void remove(const NodeId& node);
    LiveLease* find(const NodeId& node);
    std::size_t size() const { return by_node_.size(); }

    // Changes one piece's proof (and whether it counts as serving).
    static void set_proof(LiveLease& lease, std::size_t piece, Instant since, Instant proved);
    // When next to look at a lease's pieces, whose proofs were changed.
    static void set_next_check(LiveLease& lease, const Rules& rules);

    template <class Visit>
    void each(Visit visit) {
        for (LiveLease& lease : leases_) {
            if (lease.demand != nullptr) visit(lease);
        }
    }

    // Marks with `mark` the cells that other nodes of this owner or at this site lease of the demand's model.
    void mark_taken(const Demand& demand, const NodeId& node, const OwnerId& owner, const std::string& site,
                    std::uint8_t mark, std::vector<std::uint8_t>& cells) const;

  private:
    using Slots = std::vector<std::uint32_t>;
    static void count(const LiveLease& lease, int change);
    void mark(const Slots& slots, const Demand& demand, const NodeId& node, std::uint8_t mark,
              std::vector<std::uint8_t>& cells) const;

    std::vector<LiveLease> leases_;  // a free one has no demand
    Slots free_;
    std::unordered_map<NodeId, std::uint32_t, DigestHash> by_node_;
    std::unordered_map<OwnerId, Slots, DigestHash> by_owner_;
    std::unordered_map<std::string, Slots> by_site_;
};

}  // namespace kvasir::market
