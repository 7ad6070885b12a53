// A market on a store in memory, with a clock that stands still, and nodes to trade on it.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "market/market.h"
#include "market/sqlite_store.h"

namespace kvasir::market::testing {

using namespace std::chrono_literals;

// Layers of `experts` experts of `bytes`; the first layer is number 1 (a dense one comes before).
Offer small_offer(std::uint32_t layers, std::uint32_t experts, std::uint64_t bytes = 1000, std::uint32_t target = 3);

// A budget for so many experts of the model's first layer, with no other bound.
Budget room_for(const Offer& offer, std::uint32_t experts);

class MarketTest : public ::testing::Test {
  protected:
    // What a test wants otherwise it sets before start().
    Rules rules_;
    AccessRules access_{.per_address = {1e9, 1e9}, .registrations = {1e9, 1e9}, .per_key = {1e9, 1e9}};

    void start(const Offer& offer, std::unique_ptr<SqliteStore> store = nullptr);
    // The hub ends and starts again with what is stored.
    void restart();
    // Heartbeat by heartbeat; nobody renews.
    void pass(Duration time);
    // The same, `who` renewing with their epochs.
    void pass_renewing(Duration time, std::span<const Caller> who);

    // A worker of its own owner at its own site, unless told otherwise.
    Caller add_worker(const std::optional<OwnershipProof>& proof = std::nullopt);
    Caller add_backbone();
    Caller add_admin();
    // An owner's proof for the worker that add_worker() makes next.
    OwnershipProof owned_by(const Identity& owner) const;
    std::string site_of_node(const NodeId& node) const { return to_hex(node).substr(0, 12); }

    Result<Grant> enrol(const Caller& who, std::vector<Wish> wishes);
    // At today's rates.
    Wish wish(const Caller& who, const Piece& piece);
    // Enrols for these pieces and expects to get them.
    LeaseRecord lease(const Caller& who, std::vector<Piece> pieces);
    // Chooses and enrols until nothing is refused.
    void enrol_by_choice(const Caller& who, const Budget& budget, std::uint64_t seed);
    void prove(const Caller& who);
    Renewal renew(const Caller& who, std::uint64_t epoch) { return market_->renew(who, site_of_node(who.node), epoch); }
    LeaseRecord lease_of(const Caller& who) const;
    std::vector<DemandRow> demand() const;
    DemandRow cell(std::uint32_t layer, std::uint32_t expert) const;

    // Signed by the backbone of add_backbone().
    Result<Settlement> settle(std::uint64_t sequence, std::vector<ReceiptLine> lines);
    Receipt receipt(std::uint64_t sequence, std::vector<ReceiptLine> lines) const;

    ModelId model_{};
    ManualClock clock_{Instant(20'000 * 24h)};
    std::unique_ptr<SqliteStore> store_;
    std::unique_ptr<Registry> registry_;
    std::unique_ptr<Market> market_;
    std::optional<Identity> backbone_key_;
    Caller backbone_;

  private:
    void open();
    Caller add(const PublicKey& key, const std::optional<OwnershipProof>& proof, Roles roles);
    PublicKey next_key() const;

    std::uint32_t nodes_ = 0;
};

}  // namespace kvasir::market::testing
