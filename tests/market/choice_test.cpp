#include "market/choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "market/market_fixture.h"
#include "market/random.h"

namespace kvasir::market {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using namespace std::chrono_literals;
using testing::room_for;
using testing::small_offer;

class ChoiceTest : public ::testing::Test {
  protected:
    static View view_of(const Offer& offer, Rate rate) {
        return {std::make_shared<const Offer>(offer), std::vector<Rate>(offer.cells(), rate),
                std::vector<float>(offer.cells(), 0)};
    }
    static std::vector<Piece> pieces(const std::vector<Wish>& wishes) {
        std::vector<Piece> all;
        for (const Wish& wish : wishes)
            all.push_back(wish.piece);
        return normalized(std::move(all));
    }
    static std::uint32_t count(const std::vector<Wish>& wishes) {
        std::uint32_t sum = 0;
        for (const Wish& wish : wishes)
            sum += wish.piece.count;
        return sum;
    }

    Rules rules_;
    Offer offer_ = small_offer(3, 16);
};

TEST_F(ChoiceTest, ADeviceWithRoomForOneExpertTakesTheOneThatPaysBest) {
    View view = view_of(offer_, 1000);
    view.rates[20] = 1001;  // layer 2, expert 4
    EXPECT_THAT(choose(view, room_for(offer_, 1), {}, rules_, 7), ElementsAre(Wish{{2, 4, 1}, 1001}));
}

TEST_F(ChoiceTest, NothingFitsOrNothingPays) {
    View view = view_of(offer_, 1000);
    EXPECT_THAT(choose(view, room_for(offer_, 0), {}, rules_, 7), IsEmpty());
    Budget budget = room_for(offer_, 8);
    budget.memory_bytes = 999;
    EXPECT_THAT(choose(view, budget, {}, rules_, 7), IsEmpty());
    budget = room_for(offer_, 8);
    budget.disk_bytes = 999;
    EXPECT_THAT(choose(view, budget, {}, rules_, 7), IsEmpty());
    budget = room_for(offer_, 8);
    budget.download_time = 0ms;
    EXPECT_THAT(choose(view, budget, {}, rules_, 7), IsEmpty());
    budget = room_for(offer_, 8);
    budget.read_bytes_per_s = 0;
    EXPECT_THAT(choose(view, budget, {}, rules_, 7), IsEmpty());
    EXPECT_THAT(choose(view_of(offer_, 0), room_for(offer_, 8), {}, rules_, 7), IsEmpty());
}

TEST_F(ChoiceTest, TakesTheSameWideRangeOfSeveralLayers) {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
        const std::vector<Piece> got = pieces(choose(view_of(offer_, 1000), room_for(offer_, 24), {}, rules_, seed));
        // A whole layer, and half of another: no crumbs.
        ASSERT_EQ(got.size(), 2U) << describe(got);
        EXPECT_EQ(got[0].count + got[1].count, 24U);
        const std::vector<Piece> small = pieces(choose(view_of(offer_, 1000), room_for(offer_, 12), {}, rules_, seed));
        ASSERT_LE(small.size(), 2U) << describe(small);
    }
    // Room for less than two blocks of eight in one layer, but the range is worth the same in the others.
    View view = view_of(offer_, 1000);
    for (CellIndex cell = 0; cell < offer_.cells(); ++cell)
        view.rates[cell] = cell % 16 < 4 ? 1000 : 950;
    const std::vector<Piece> aligned = pieces(choose(view, room_for(offer_, 7), {}, rules_, 3));
    ASSERT_FALSE(aligned.empty());
    EXPECT_EQ(aligned[0].first, 0U);
}

TEST_F(ChoiceTest, AMissingReplicaIsFoundByANodeWithMuchRoom) {
    View view = view_of(offer_, 750'000);
    view.rates[35] = 16'000'000;
    const std::vector<Piece> got = pieces(choose(view, room_for(offer_, 16), {}, rules_, 0));
    EXPECT_TRUE(std::ranges::any_of(got, [](const Piece& piece) { return piece.layer == 3 && piece.contains(3); }))
        << describe(got);
}

TEST_F(ChoiceTest, WhatIsKeptStaysUnlessTheGainIsAboveTheThreshold) {
    const std::vector<Piece> kept = {{1, 0, 4}};
    View view = view_of(offer_, 1000);
    // Better by 35 %, and wider: not enough.
    std::fill(view.rates.begin() + 16, view.rates.end(), 1350);
    EXPECT_THAT(pieces(choose(view, room_for(offer_, 4), kept, rules_, 5)), ElementsAre(Piece{1, 0, 4}));
    std::fill(view.rates.begin() + 16, view.rates.end(), 1600);
    const std::vector<Piece> moved = pieces(choose(view, room_for(offer_, 4), kept, rules_, 5));
    for (const Piece& piece : moved)
        EXPECT_NE(piece.layer, 1U);
    // Its worst expert only.
    view = view_of(offer_, 1000);
    view.rates[2] = 100;
    const std::vector<Wish> swapped = choose(view, room_for(offer_, 4), kept, rules_, 5);
    EXPECT_EQ(count(swapped), 4U);
    const std::vector<Piece> now = pieces(swapped);
    EXPECT_FALSE(std::ranges::any_of(now, [](const Piece& piece) { return piece.layer == 1 && piece.contains(2); }));
    for (std::uint32_t expert : {0U, 1U, 3U}) {
        EXPECT_TRUE(
            std::ranges::any_of(now, [&](const Piece& piece) { return piece.layer == 1 && piece.contains(expert); }));
    }
}

TEST_F(ChoiceTest, WhatIsOnTheDiskNeedsNoDownload) {
    Budget budget = room_for(offer_, 8);
    budget.download_bytes_per_s = 2000;  // two experts
    const std::vector<Piece> kept = {{2, 8, 4}};
    const std::vector<Wish> got = choose(view_of(offer_, 1000), budget, kept, rules_, 5);
    EXPECT_EQ(count(got), 6U);
    EXPECT_EQ(count(choose(view_of(offer_, 1000), budget, {}, rules_, 5)), 2U);
}

TEST_F(ChoiceTest, ExpertsTakenByItsOwnerAreLeftOut) {
    View view = view_of(offer_, 1000);
    for (CellIndex cell = 0; cell < offer_.cells(); ++cell) {
        if (cell % 4 != 1) view.rates[cell] = 0;
    }
    const std::vector<Wish> got = choose(view, room_for(offer_, 48), {}, rules_, 5);
    EXPECT_EQ(count(got), 12U);
    for (const Wish& wish : got)
        EXPECT_EQ(wish.piece.first % 4, 1U);
}

TEST_F(ChoiceTest, NodesThatChooseTogetherChooseApart) {
    std::set<Piece> first;
    for (std::uint64_t seed = 0; seed < 100; ++seed)
        first.insert(choose(view_of(offer_, 1000), room_for(offer_, 1), {}, rules_, seed)[0].piece);
    EXPECT_GT(first.size(), 24U);  // of 48
}

// Random views and budgets: never more than fits, never twice, never what is taken; the rates are the view's.
TEST_F(ChoiceTest, KeepsEveryBudget) {
    Random random(11);
    for (int round = 0; round < 300; ++round) {
        const Offer offer = small_offer(1 + static_cast<std::uint32_t>(random.below(5)),
                                        1 + static_cast<std::uint32_t>(random.below(40)));
        View view = view_of(offer, 0);
        for (CellIndex cell = 0; cell < offer.cells(); ++cell) {
            view.rates[cell] = random.chance(0.2) ? 0 : 1 + random.below(20'000'000);
            view.loads[cell] = static_cast<float>(random.below(1000));
        }
        Budget budget{.memory_bytes = random.below(100'000),
                      .disk_bytes = random.below(100'000),
                      .download_bytes_per_s = random.below(100'000),
                      .download_time = 1s,
                      .read_bytes_per_s = random.below(30'000)};
        std::vector<Piece> kept;
        if (random.chance(0.5)) kept.push_back({1, 0, 1 + static_cast<std::uint32_t>(random.below(40))});
        if (!kept.empty() && !offer.cells_of(kept[0])) kept.clear();
        std::uint64_t bytes = 0;
        std::uint64_t fresh = 0;
        double load = 0;
        std::set<CellIndex> cells;
        for (const Wish& wish : choose(view, budget, kept, rules_, random.next())) {
            const Offer::Cells range = offer.cells_of(wish.piece).value();
            Rate sum = 0;
            for (CellIndex cell = range.first; cell < range.end; ++cell) {
                EXPECT_TRUE(cells.insert(cell).second);
                EXPECT_GT(view.rates[cell], 0U);
                sum += view.rates[cell];
                bytes += 1000;
                load += view.loads[cell];
                if (kept.empty() || wish.piece.layer != 1 || !kept[0].contains(cell)) fresh += 1000;
            }
            EXPECT_EQ(wish.rate, sum / wish.piece.count);
        }
        EXPECT_LE(bytes, std::min(budget.memory_bytes, budget.disk_bytes));
        EXPECT_LE(fresh, budget.download_bytes_per_s);
        EXPECT_LE(load, static_cast<double>(budget.read_bytes_per_s));
    }
}

}  // namespace
}  // namespace kvasir::market
