#include "market/lease_book.h"

#include <algorithm>

namespace kvasir::market {
namespace {

template <class Map, class Key>
void erase_slot(Map& map, const Key& key, std::uint32_t slot) {
    auto found = map.find(key);
    std::erase(found->second, slot);
    if (found->second.empty()) map.erase(found);
}

}  // namespace

void LeaseBook::count(const LiveLease& lease, int change) {
    for (const LeasedPiece& leased : lease.record.pieces) {
        lease.demand->add_leased(leased.piece, change);
        if (leased.serving()) lease.demand->add_serving(leased.piece, change);
    }
}

void LeaseBook::put(LiveLease lease, const Rules& rules) {
    remove(lease.record.node);
    set_next_check(lease, rules);
    std::uint32_t slot = 0;
    if (free_.empty()) {
        slot = static_cast<std::uint32_t>(leases_.size());
        leases_.emplace_back();
    } else {
        slot = free_.back();
        free_.pop_back();
    }
    by_node_[lease.record.node] = slot;
    by_owner_[lease.record.owner].push_back(slot);
    by_site_[lease.record.site].push_back(slot);
    count(lease, 1);
    leases_[slot] = std::move(lease);
}

void LeaseBook::remove(const NodeId& node) {
    auto found = by_node_.find(node);
    if (found == by_node_.end()) return;
    const std::uint32_t slot = found->second;
    LiveLease& lease = leases_[slot];
    count(lease, -1);
    erase_slot(by_owner_, lease.record.owner, slot);
    erase_slot(by_site_, lease.record.site, slot);
    by_node_.erase(found);
    lease = {};
    free_.push_back(slot);
}

LiveLease* LeaseBook::find(const NodeId& node) {
    auto found = by_node_.find(node);
    return found == by_node_.end() ? nullptr : &leases_[found->second];
}

void LeaseBook::set_proof(LiveLease& lease, std::size_t piece, Instant since, Instant proved) {
    LeasedPiece& leased = lease.record.pieces[piece];
    const bool served = leased.serving();
    leased.since = since;
    leased.proved = proved;
    if (leased.serving() != served) lease.demand->add_serving(leased.piece, served ? -1 : 1);
}

void LeaseBook::set_next_check(LiveLease& lease, const Rules& rules) {
    lease.next_check = Instant::max();
    for (const LeasedPiece& leased : lease.record.pieces) {
        lease.next_check =
            std::min(lease.next_check, leased.serving() ? leased.proved : leased.since + rules.prove_within);
    }
}

void LeaseBook::mark_taken(const Demand& demand, const NodeId& node, const OwnerId& owner, const std::string& site,
                           std::uint8_t mark_with, std::vector<std::uint8_t>& cells) const {
    if (auto owned = by_owner_.find(owner); owned != by_owner_.end()) {
        mark(owned->second, demand, node, mark_with, cells);
    }
    if (auto there = by_site_.find(site); there != by_site_.end()) mark(there->second, demand, node, mark_with, cells);
}

void LeaseBook::mark(const Slots& slots, const Demand& demand, const NodeId& node, std::uint8_t mark_with,
                     std::vector<std::uint8_t>& cells) const {
    for (std::uint32_t slot : slots) {
        const LiveLease& lease = leases_[slot];
        if (lease.demand != &demand || lease.record.node == node) continue;
        for (const LeasedPiece& leased : lease.record.pieces) {
            const Offer::Cells range = demand.offer().cells_of(leased.piece).value();
            std::fill(cells.begin() + range.first, cells.begin() + range.end, mark_with);
        }
    }
}

}  // namespace kvasir::market
