// Leases: who gets which, for how long, and what becomes of them.
#include "market/market.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "market/market_fixture.h"
#include "market/random.h"

namespace kvasir::market::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(MarketTest, AHundredNodesThatEnrolAtOnceCoverEverythingAndNoneTwice) {
    const Offer offer = small_offer(4, 25);  // 100 experts, 3 replicas: 300 in all
    start(offer);
    std::vector<Caller> nodes;
    for (int i = 0; i < 100; ++i)
        nodes.push_back(add_worker());
    // All look at the empty map, then all ask; who was refused looks and asks again.
    std::vector<std::size_t> waiting(nodes.size());
    std::iota(waiting.begin(), waiting.end(), 0U);
    int rounds = 0;
    for (; !waiting.empty() && rounds < 20; ++rounds) {
        std::vector<std::vector<Wish>> wishes;
        for (std::size_t i : waiting) {
            const NodeView view = market_->view(nodes[i], site_of_node(nodes[i].node), model_).value();
            wishes.push_back(choose(view.view, room_for(offer, 3), view.held, rules_, i));
        }
        std::vector<std::size_t> refused;
        for (std::size_t w = 0; w < waiting.size(); ++w) {
            Result<Grant> grant = enrol(nodes[waiting[w]], wishes[w]);
            ASSERT_TRUE(grant) << grant.error().message;
            if (!grant->refused.empty()) refused.push_back(waiting[w]);
        }
        waiting = refused;
    }
    EXPECT_THAT(waiting, IsEmpty());
    EXPECT_LT(rounds, 20);
    for (const DemandRow& row : demand())
        EXPECT_EQ(row.leased, 3U) << row.piece.layer << ' ' << row.piece.first;
}

TEST_F(MarketTest, OfTwoThatSawTheSameGapTheSecondIsRefused) {
    start(small_offer(1, 4, 1000, 1));
    const Caller a = add_worker();
    const Caller b = add_worker();
    const Wish seen_by_a = wish(a, {1, 0, 2});
    const Wish seen_by_b = wish(b, {1, 1, 2});
    EXPECT_THAT(enrol(a, {seen_by_a})->refused, IsEmpty());
    Result<Grant> second = enrol(b, {seen_by_b});
    ASSERT_TRUE(second);
    EXPECT_THAT(second->refused, ::testing::ElementsAre(seen_by_b));
    EXPECT_EQ(second->lease.epoch, 0U);
    EXPECT_EQ(cell(1, 1).leased, 1U);
    EXPECT_EQ(cell(1, 2).leased, 0U);
    // For what it is worth now it may have it.
    EXPECT_THAT(enrol(b, {wish(b, {1, 1, 2})})->refused, IsEmpty());
    EXPECT_EQ(cell(1, 1).leased, 2U);
}

TEST_F(MarketTest, ARateMayFallByTheSlackButNoFurther) {
    start(small_offer(1, 2, 1000, 1));
    const Caller node = add_worker();
    const Rate now = wish(node, {1, 0, 1}).rate;
    EXPECT_EQ(now, 16'000'000U);
    EXPECT_EQ(enrol(node, {{{1, 0, 1}, now * 5 / 4 + 1}})->refused.size(), 1U);
    EXPECT_THAT(enrol(node, {{{1, 0, 1}, now * 5 / 4}})->refused, IsEmpty());
}

TEST_F(MarketTest, CoveredMeansServing) {
    start(small_offer(2, 8));
    const Caller node = add_worker();
    lease(node, {{1, 2, 3}});
    EXPECT_EQ(cell(1, 2).leased, 1U);
    EXPECT_EQ(cell(1, 2).serving, 0U);
    EXPECT_EQ(cell(1, 1).leased, 0U);
    EXPECT_EQ(cell(1, 5).leased, 0U);
    prove(node);
    EXPECT_EQ(cell(1, 2).serving, 1U);
    EXPECT_EQ(cell(1, 4).serving, 1U);
    EXPECT_EQ(cell(1, 5).serving, 0U);
    EXPECT_EQ(market_->stats().cells_missing_serving, 16U);
    EXPECT_EQ(market_->stats().leases, 1U);
}

TEST_F(MarketTest, AProbeProvesOnlyPiecesThatItCoversWholly) {
    start(small_offer(2, 8));
    const Caller node = add_worker();
    const LeaseRecord held = lease(node, {{1, 2, 3}, {2, 0, 2}});
    ASSERT_TRUE(market_->report_probe(backbone_, {node.node, held.epoch, {{1, 2, 2}, {2, 0, 8}}, {}}));
    EXPECT_EQ(cell(1, 2).serving, 0U);
    EXPECT_EQ(cell(2, 1).serving, 1U);
}

TEST_F(MarketTest, AFailedProbeEndsTheLeaseAndBarsForLongerEachTime) {
    start(small_offer(2, 8));
    const Caller node = add_worker();
    for (Duration bar : {5min, 10min, 20min}) {
        const LeaseRecord held = lease(node, {{1, 2, 3}});
        ASSERT_TRUE(market_->report_probe(backbone_, {node.node, held.epoch, {}, {{1, 2, 1}}}));
        EXPECT_EQ(cell(1, 2).leased, 0U);
        EXPECT_EQ(renew(node, held.epoch).state, RenewalState::lost);
        clock_.advance(bar - 1ms);
        Result<Grant> early = enrol(node, {wish(node, {1, 2, 3})});
        ASSERT_FALSE(early);
        EXPECT_EQ(early.error().kind, ErrorKind::unavailable);
        restart();  // a bar outlasts the hub
        EXPECT_FALSE(enrol(node, {wish(node, {1, 2, 3})}));
        clock_.advance(1ms);
    }
    EXPECT_TRUE(enrol(node, {wish(node, {1, 2, 3})}));
}

TEST_F(MarketTest, OnlyForeignBackbonesAndAdminsProbe) {
    start(small_offer(2, 8));
    const Caller node = add_worker();
    const LeaseRecord held = lease(node, {{1, 0, 1}});
    const ProbeReport passed{node.node, held.epoch, {{1, 0, 1}}, {}};
    const ProbeReport failed{node.node, held.epoch, {}, {{1, 0, 1}}};
    EXPECT_EQ(market_->report_probe(add_worker(), failed).error().kind, ErrorKind::usage);
    Caller own = add_backbone();
    own.owner = node.owner;
    EXPECT_EQ(market_->report_probe(own, passed).error().kind, ErrorKind::usage);
    EXPECT_EQ(market_->report_probe(backbone_, {node.node, held.epoch + 1, {}, {{1, 0, 1}}}).error().kind,
              ErrorKind::unavailable);
    EXPECT_EQ(cell(1, 0).serving, 0U);
    EXPECT_EQ(cell(1, 0).leased, 1U);
    EXPECT_TRUE(market_->report_probe(add_admin(), passed));
    EXPECT_EQ(cell(1, 0).serving, 1U);
}

TEST_F(MarketTest, WithoutHeartbeatsALeaseEnds) {
    start(small_offer(2, 8));
    const Caller quiet = add_worker();
    const Caller busy = add_worker();
    const LeaseRecord a = lease(quiet, {{1, 0, 1}});
    const LeaseRecord b = lease(busy, {{1, 0, 1}});
    pass_renewing(rules_.lease - rules_.heartbeat, std::span(&busy, 1));
    EXPECT_EQ(cell(1, 0).leased, 2U);
    // It comes late, but before the lease was taken.
    EXPECT_EQ(renew(quiet, a.epoch).state, RenewalState::valid);
    pass_renewing(rules_.lease, std::span(&busy, 1));
    EXPECT_EQ(cell(1, 0).leased, 1U);
    EXPECT_EQ(renew(quiet, a.epoch).state, RenewalState::lost);
    EXPECT_EQ(renew(busy, b.epoch).state, RenewalState::valid);
    EXPECT_EQ(renew(busy, b.epoch).valid_for, rules_.lease);
}

TEST_F(MarketTest, WhatIsNotProvedInTimeIsLost) {
    start(small_offer(2, 8));
    const Caller node = add_worker();
    const LeaseRecord held = lease(node, {{1, 0, 2}, {2, 0, 2}});
    ASSERT_TRUE(market_->report_probe(backbone_, {node.node, held.epoch, {{1, 0, 2}}, {}}));
    pass_renewing(rules_.prove_within - rules_.heartbeat, std::span(&node, 1));
    EXPECT_EQ(cell(2, 0).leased, 1U);
    pass_renewing(rules_.heartbeat, std::span(&node, 1));
    EXPECT_EQ(cell(2, 0).leased, 0U);
    EXPECT_EQ(cell(1, 0).serving, 1U);
    const Renewal renewal = renew(node, held.epoch);
    EXPECT_EQ(renewal.state, RenewalState::changed);
    EXPECT_EQ(renewal.epoch, held.epoch + 1);
    EXPECT_EQ(lease_of(node).pieces.size(), 1U);

    const Caller never = add_worker();
    lease(never, {{1, 0, 2}});
    pass_renewing(rules_.prove_within, std::span(&never, 1));
    EXPECT_EQ(lease_of(never).epoch, 0U);
}

TEST_F(MarketTest, AProofRunsOut) {
    rules_.term = 1000h;
    start(small_offer(1, 8));
    const Caller node = add_worker();
    lease(node, {{1, 0, 2}});
    prove(node);
    pass_renewing(rules_.proof - rules_.heartbeat, std::span(&node, 1));
    EXPECT_EQ(cell(1, 0).serving, 1U);
    pass_renewing(rules_.heartbeat, std::span(&node, 1));
    EXPECT_EQ(cell(1, 0).serving, 0U);
    EXPECT_EQ(cell(1, 0).leased, 1U);
    prove(node);
    EXPECT_EQ(cell(1, 0).serving, 1U);
    pass_renewing(rules_.proof + rules_.prove_within, std::span(&node, 1));
    EXPECT_EQ(cell(1, 0).leased, 0U);
}

TEST_F(MarketTest, OtherPiecesMeanAnotherEpochTheSamePiecesDoNot) {
    start(small_offer(2, 8));
    const Caller node = add_worker();
    const LeaseRecord first = lease(node, {{1, 0, 2}});
    EXPECT_EQ(first.epoch, 1U);
    EXPECT_EQ(lease(node, {{1, 0, 2}}), first);
    const LeaseRecord more = lease(node, {{1, 0, 4}});
    EXPECT_EQ(more.epoch, 2U);
    EXPECT_EQ(renew(node, 1).state, RenewalState::changed);
    EXPECT_EQ(renew(node, 1).epoch, 2U);
    ASSERT_TRUE(market_->release(node, 1));  // that is over long ago
    EXPECT_EQ(cell(1, 0).leased, 1U);
    ASSERT_TRUE(market_->release(node, 2));
    EXPECT_EQ(cell(1, 0).leased, 0U);
    EXPECT_EQ(lease(node, {{1, 0, 2}}).epoch, 3U);
}

TEST_F(MarketTest, GrowingKeepsRatesAndProofs) {
    start(small_offer(1, 8));
    const Caller node = add_worker();
    const LeaseRecord first = lease(node, {{1, 2, 2}});
    prove(node);
    // Somebody else comes: what is added is worth less.
    lease(add_worker(), {{1, 0, 8}});
    const LeaseRecord grown = lease(node, {{1, 0, 8}});
    ASSERT_EQ(grown.pieces.size(), 3U);
    EXPECT_EQ(grown.pieces[0].piece, (Piece{1, 0, 2}));
    EXPECT_EQ(grown.pieces[1].piece, (Piece{1, 2, 2}));
    EXPECT_EQ(grown.pieces[2].piece, (Piece{1, 4, 4}));
    EXPECT_EQ(grown.pieces[1].rate, first.pieces[0].rate);
    EXPECT_EQ(grown.pieces[0].rate, 32'000'000U);
    EXPECT_TRUE(grown.pieces[1].serving());
    EXPECT_FALSE(grown.pieces[0].serving());
    EXPECT_EQ(cell(1, 2).serving, 1U);
    EXPECT_EQ(cell(1, 0).serving, 0U);
}

TEST_F(MarketTest, AMoveMustWaitForTheDwellTime) {
    start(small_offer(2, 8));
    const Caller node = add_worker();
    lease(node, {{1, 0, 2}});
    pass_renewing(rules_.dwell - rules_.heartbeat, {});
    lease(node, {{1, 0, 2}});
    clock_.advance(rules_.dwell - 1ms);
    ASSERT_TRUE(market_->tick());
    lease(node, {{1, 0, 4}});  // growing is no move
    Result<Grant> early = enrol(node, {wish(node, {2, 0, 4})});
    // The first lease had run out: the second began anew.
    ASSERT_FALSE(early);
    EXPECT_EQ(early.error().kind, ErrorKind::unavailable);
    EXPECT_THAT(early.error().message, HasSubstr("moved"));
    EXPECT_EQ(cell(1, 0).leased, 1U);
    clock_.advance(1ms);
    EXPECT_TRUE(enrol(node, {wish(node, {2, 0, 4})}));
    EXPECT_EQ(cell(1, 0).leased, 0U);
    EXPECT_FALSE(enrol(node, {wish(node, {1, 0, 4})}));
}

TEST_F(MarketTest, ConstantLoadMeansNoMoves) {
    const Offer offer = small_offer(4, 16);
    start(offer);
    std::vector<Caller> nodes;
    for (std::uint64_t i = 0; i < 60; ++i) {
        nodes.push_back(add_worker());
        enrol_by_choice(nodes.back(), room_for(offer, 1 + static_cast<std::uint32_t>(i % 9)), i);
        ASSERT_NE(lease_of(nodes.back()).epoch, 0U) << i;
    }
    for (int minute = 0; minute < 60 * 12; ++minute) {
        for (std::uint32_t layer = 1; layer <= 4; ++layer) {
            LoadReport load{.model = model_, .layer = layer, .parts = {}};
            for (std::uint32_t expert = 0; expert < 16; ++expert)
                load.parts.push_back({expert, 1, 10 * (expert + 1), 0});
            ASSERT_TRUE(market_->report_load(backbone_, load));
        }
        pass_renewing(rules_.heartbeat, nodes);
        // For half a day the market learns what is popular; then nobody has a reason to move.
        for (std::size_t i = 0; i < nodes.size(); ++i) {
            if (minute % 10 == 0) prove(nodes[i]);
            const LeaseRecord held = lease_of(nodes[i]);
            if (minute < 60 * 6) {
                if (renew(nodes[i], held.epoch).review) {
                    const NodeView view = market_->view(nodes[i], held.site, model_).value();
                    static_cast<void>(
                        enrol(nodes[i], choose(view.view, room_for(offer, 1 + i % 9), view.held, rules_, i)));
                }
                continue;
            }
            const NodeView view = market_->view(nodes[i], held.site, model_).value();
            std::vector<Piece> chosen;
            for (const Wish& wish : choose(view.view, room_for(offer, 1 + i % 9), view.held, rules_, i))
                chosen.push_back(wish.piece);
            ASSERT_EQ(normalized(chosen), normalized(view.held)) << "node " << i << ", minute " << minute;
        }
    }
}

TEST_F(MarketTest, OneOwnerOrSiteIsOneReplica) {
    start(small_offer(1, 8));
    const Identity owner = Identity::generate().value();
    const Caller first = add_worker(owned_by(owner));
    const Caller second = add_worker(owned_by(owner));
    ASSERT_EQ(first.owner, second.owner);
    lease(first, {{1, 2, 2}});
    EXPECT_EQ(market_->view(second, "elsewhere", model_)->view.rates[2], 0U);
    EXPECT_EQ(market_->view(second, "elsewhere", model_)->view.rates[1], 48'000'000U);
    EXPECT_EQ(enrol(second, {{{1, 1, 2}, 1}})->refused.size(), 1U);
    EXPECT_THAT(enrol(second, {{{1, 4, 4}, 1}})->refused, IsEmpty());

    const Caller neighbour = add_worker();
    EXPECT_EQ(
        market_->enrol(neighbour, site_of_node(first.node), model_, std::vector<Wish>{{{1, 3, 1}, 1}})->refused.size(),
        1U);
    EXPECT_EQ(market_->view(neighbour, site_of_node(first.node), model_)->view.rates[3], 0U);
    EXPECT_EQ(enrol(neighbour, {{{1, 3, 1}, 1}})->refused.size(), 0U);
}

TEST_F(MarketTest, FromAnotherSiteALeaseIsAnother) {
    start(small_offer(1, 8));
    const Caller traveller = add_worker();
    const Caller resident = add_worker();
    lease(resident, {{1, 0, 2}});
    const LeaseRecord held = lease(traveller, {{1, 0, 4}});
    prove(traveller);
    const std::string there = site_of_node(resident.node);
    EXPECT_EQ(market_->renew(traveller, there, held.epoch).state, RenewalState::lost);
    // What somebody has there already it can't keep, and what it can is to be proved again.
    const std::vector<Wish> wishes = {{{1, 0, 2}, 1}, {{1, 2, 2}, 1}};
    Result<Grant> again = market_->enrol(traveller, there, model_, wishes);
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_EQ(again->refused.size(), 1U);
    EXPECT_EQ(again->lease.epoch, held.epoch + 1);
    EXPECT_EQ(cell(1, 0).leased, 1U);
    EXPECT_EQ(cell(1, 2).leased, 1U);
    EXPECT_EQ(cell(1, 2).serving, 0U);
}

TEST_F(MarketTest, LeasesOutlastTheHub) {
    start(small_offer(2, 8));
    const Caller node = add_worker();
    const LeaseRecord held = lease(node, {{1, 0, 2}, {2, 4, 4}});
    ASSERT_TRUE(market_->report_probe(backbone_, {node.node, held.epoch, {{1, 0, 2}}, {}}));
    clock_.advance(1h);  // the hub is down
    restart();
    EXPECT_EQ(cell(1, 0).serving, 1U);
    EXPECT_EQ(cell(2, 4).leased, 1U);
    EXPECT_EQ(cell(2, 4).serving, 0U);
    pass(rules_.grace - rules_.heartbeat);
    EXPECT_EQ(renew(node, held.epoch).state, RenewalState::valid);
    EXPECT_EQ(lease_of(node).pieces.size(), 2U);
    // Who does not come back within the grace is gone.
    clock_.advance(1h);
    restart();
    pass(rules_.grace);
    EXPECT_EQ(renew(node, held.epoch).state, RenewalState::lost);
    EXPECT_EQ(cell(1, 0).leased, 0U);
    restart();
    EXPECT_EQ(market_->stats().leases, 0U);
    EXPECT_EQ(lease(node, {{1, 0, 2}}).epoch, held.epoch + 1);
}

TEST_F(MarketTest, APauseOfTheHubIsNobodysFault) {
    start(small_offer(2, 8));
    const Caller node = add_worker();
    const LeaseRecord held = lease(node, {{1, 0, 2}, {2, 0, 2}});
    ASSERT_TRUE(market_->report_probe(backbone_, {node.node, held.epoch, {{1, 0, 2}}, {}}));
    clock_.advance(8h);  // suspended, or the clock was set
    ASSERT_TRUE(market_->tick());
    EXPECT_EQ(cell(1, 0).serving, 1U);
    EXPECT_EQ(cell(2, 0).leased, 1U);
    EXPECT_NE(renew(node, held.epoch).state, RenewalState::lost);
    // Two heartbeats without a tick are no pause.
    for (Duration passed{}; passed < rules_.grace + 2 * rules_.heartbeat; passed += 2 * rules_.heartbeat) {
        clock_.advance(2 * rules_.heartbeat);
        ASSERT_TRUE(market_->tick());
    }
    EXPECT_EQ(market_->stats().leases, 0U);
    const std::uint64_t epoch = lease(node, {{1, 0, 2}}).epoch;
    // Backwards it does not go.
    clock_.advance(-24h);
    ASSERT_TRUE(market_->tick());
    EXPECT_EQ(renew(node, epoch).state, RenewalState::valid);
}

TEST_F(MarketTest, RatesAreSetAnewAfterATerm) {
    start(small_offer(1, 8));
    const Caller early = add_worker();
    const LeaseRecord first = lease(early, {{1, 0, 2}, {1, 2, 2}});
    EXPECT_EQ(first.pieces[0].rate, 48'000'000U);
    prove(early);
    std::vector<Caller> all = {early};
    for (int i = 0; i < 4; ++i) {
        all.push_back(add_worker());
        lease(all.back(), {{1, 0, 8}});
        prove(all.back());
    }
    pass_renewing(rules_.term - rules_.heartbeat, all);
    EXPECT_EQ(lease_of(early).epoch, first.epoch);
    EXPECT_EQ(lease_of(early).pieces[0].rate, first.pieces[0].rate);
    prove(early);
    pass_renewing(rules_.heartbeat, all);
    const LeaseRecord later = lease_of(early);
    EXPECT_EQ(later.epoch, first.epoch + 1);
    ASSERT_EQ(later.pieces.size(), 1U);
    EXPECT_EQ(later.pieces[0].piece, (Piece{1, 0, 4}));
    EXPECT_EQ(later.pieces[0].rate, 600'000U);  // with four others there: 3 / 5
    EXPECT_TRUE(later.pieces[0].serving());
}

TEST_F(MarketTest, PopularityAndMissesMoveRates) {
    start(small_offer(1, 4));
    LoadReport load{.model = model_, .layer = 1, .parts = {{0, 1, 6000, 6000}, {1, 2, 2000, 0}}};
    ASSERT_TRUE(market_->report_load(backbone_, load));
    ASSERT_TRUE(market_->tick());
    EXPECT_EQ(cell(1, 0).popularity, 3000U);
    EXPECT_EQ(cell(1, 1).popularity, 500U);
    EXPECT_EQ(cell(1, 3).popularity, 250U);
    EXPECT_EQ(cell(1, 0).wanted, 6U);
    EXPECT_EQ(cell(1, 1).wanted, 3U);
    EXPECT_EQ(cell(1, 0).rate, 6U * 16 * 3 * 1'000'000);
    EXPECT_EQ(cell(1, 3).rate, 12'000'000U);
    const double before = cell(1, 0).rows_per_s;
    EXPECT_NEAR(before, 6000 / (6 * 3600 / std::log(2.0)), before / 1000);
    // Half of it is forgotten in six hours, the shares stay; a restart loses none of it once it is saved.
    pass(6h);
    EXPECT_NEAR(cell(1, 0).rows_per_s, before / 2, before / 1000);
    EXPECT_EQ(cell(1, 0).popularity, 3000U);
    restart();
    EXPECT_NEAR(cell(1, 0).rows_per_s, before / 2, before / 1000);

    EXPECT_FALSE(market_->report_load(add_worker(), load));
    load.parts[1].first = 3;
    EXPECT_EQ(market_->report_load(backbone_, load).error().kind, ErrorKind::invalid);
    load.parts = {{0, 1, 5, 6}};
    EXPECT_EQ(market_->report_load(backbone_, load).error().kind, ErrorKind::invalid);
}

TEST_F(MarketTest, NonsenseIsRefusedAndChangesNothing) {
    start(small_offer(2, 8));
    const Caller node = add_worker();
    EXPECT_EQ(enrol(node, {}).error().kind, ErrorKind::invalid);
    EXPECT_EQ(enrol(node, {{{3, 0, 1}, 1}}).error().kind, ErrorKind::invalid);
    EXPECT_EQ(enrol(node, {{{0, 0, 1}, 1}}).error().kind, ErrorKind::invalid);  // the dense layer
    EXPECT_EQ(enrol(node, {{{1, 8, 1}, 1}}).error().kind, ErrorKind::invalid);
    EXPECT_EQ(enrol(node, {{{1, 0, 3}, 1}, {{1, 2, 1}, 1}}).error().kind, ErrorKind::invalid);
    EXPECT_EQ(enrol(node, std::vector<Wish>(5000, {{1, 0, 1}, 1})).error().kind, ErrorKind::invalid);
    EXPECT_EQ(enrol(backbone_, {{{1, 0, 1}, 1}}).error().kind, ErrorKind::usage);
    EXPECT_EQ(market_->enrol(node, "here", Digest{}, std::vector<Wish>{{{1, 0, 1}, 1}}).error().kind, ErrorKind::usage);
    EXPECT_EQ(market_->stats().leases, 0U);
    EXPECT_EQ(market_->evict(node, node.node).error().kind, ErrorKind::usage);
    lease(node, {{1, 0, 1}});
    EXPECT_TRUE(market_->evict(add_admin(), node.node));
    EXPECT_EQ(market_->stats().leases, 0U);
}

TEST_F(MarketTest, TheTargetMayChangeTheLayersMayNot) {
    start(small_offer(2, 8));
    ASSERT_TRUE(market_->offer(small_offer(2, 8, 1000, 5)));
    EXPECT_EQ(cell(1, 0).wanted, 5U);
    EXPECT_EQ(market_->offer(small_offer(2, 9)).error().kind, ErrorKind::invalid);
    restart();
    EXPECT_EQ(cell(1, 0).wanted, 5U);
    EXPECT_EQ(market_->offers().size(), 1U);
}

// Random operations; the demand's counts always are those of a plain list of leases, also after restarts.
TEST_F(MarketTest, CountsAreThoseOfTheLeases) {
    const Offer offer = small_offer(3, 12);
    rules_.dwell = 1min;
    start(offer);
    Random random(5);
    std::vector<Caller> nodes;
    for (int i = 0; i < 12; ++i)
        nodes.push_back(add_worker());
    for (int step = 0; step < 1500; ++step) {
        const Caller& node = nodes[random.below(nodes.size())];
        const std::uint64_t epoch = lease_of(node).epoch;
        switch (random.below(8)) {
            case 0:
            case 1:
                enrol_by_choice(node, room_for(offer, static_cast<std::uint32_t>(random.below(20))), random.next());
                break;
            case 2:
                renew(node, epoch);
                break;
            case 3:
                ASSERT_TRUE(market_->release(node, epoch));
                break;
            case 4:
                if (epoch != 0) prove(node);
                break;
            case 5: {
                const Piece piece{1 + static_cast<std::uint32_t>(random.below(3)), 0, 6};
                static_cast<void>(market_->report_probe(backbone_, {node.node, epoch, {piece}, {}}));
                break;
            }
            case 6:
                clock_.advance(Duration(random.below(90'000)));
                ASSERT_TRUE(market_->tick());
                break;
            case 7:
                if (random.chance(0.2)) restart();
                break;
        }
        std::vector<std::uint32_t> leased(offer.cells());
        std::vector<std::uint32_t> serving(offer.cells());
        for (const Caller& each : nodes) {
            const LeaseRecord held = lease_of(each);
            for (const LeasedPiece& piece : held.pieces) {
                const Offer::Cells cells = offer.cells_of(piece.piece).value();
                for (CellIndex cell = cells.first; cell < cells.end; ++cell) {
                    ++leased[cell];
                    serving[cell] += piece.serving() ? 1 : 0;
                }
            }
        }
        for (const DemandRow& row : demand()) {
            const Offer::Cells cells = offer.cells_of(row.piece).value();
            for (CellIndex cell = cells.first; cell < cells.end; ++cell) {
                ASSERT_EQ(row.leased, leased[cell]) << "step " << step << ", cell " << cell;
                ASSERT_EQ(row.serving, serving[cell]) << "step " << step << ", cell " << cell;
            }
        }
    }
}

}  // namespace
}  // namespace kvasir::market::testing
