#include "backbone/replica_book.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

#include "backbone/call_plan.h"

namespace kvasir {
namespace {

using Entry = ReplicaBook::Entry;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::uint32_t> workers(std::span<const ReplicaBook::Holder> holders) {
    std::vector<std::uint32_t> result;
    for (const auto& holder : holders)
        result.push_back(holder.worker);
    return result;
}

TEST(ReplicaBook, EmptyKnowsNobody) {
    ReplicaBook book;
    EXPECT_THAT(workers(book.holders(0, 0)), IsEmpty());
    EXPECT_THAT(workers(book.holders(0)), IsEmpty());
}

TEST(ReplicaBook, OverlappingPieces) {
    std::vector<Entry> entries{{0, 1, {{3, 0, 8}}}, {1, 7, {{3, 4, 8}, {5, 0, 1}}}, {2, 2, {}}};
    ReplicaBook book(entries);
    EXPECT_THAT(workers(book.holders(3, 0)), ElementsAre(0));
    EXPECT_THAT(workers(book.holders(3, 3)), ElementsAre(0));
    EXPECT_THAT(workers(book.holders(3, 4)), ElementsAre(0, 1));
    EXPECT_THAT(workers(book.holders(3, 7)), ElementsAre(0, 1));
    EXPECT_THAT(workers(book.holders(3, 8)), ElementsAre(1));
    EXPECT_THAT(workers(book.holders(3, 11)), ElementsAre(1));
    EXPECT_THAT(workers(book.holders(3, 12)), IsEmpty());
    EXPECT_THAT(workers(book.holders(4, 0)), IsEmpty());
    EXPECT_THAT(workers(book.holders(3)), ElementsAre(0, 1));
    EXPECT_EQ(book.holders(5, 0).front().epoch, 7);
}

TEST(ReplicaBook, OneWorkerCountsOnceHoweverItsPiecesOverlap) {
    std::vector<Entry> entries{{0, 1, {{0, 0, 4}, {0, 2, 4}, {0, 2, 4}}}};
    ReplicaBook book(entries);
    EXPECT_THAT(workers(book.holders(0, 3)), ElementsAre(0));
    EXPECT_THAT(workers(book.holders(0)), ElementsAre(0));
}

TEST(ReplicaBook, ExtremeNumbers) {
    std::vector<Entry> entries{{0, 1, {{0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF}, {1, 0, 0}}}};
    ReplicaBook book(entries);
    EXPECT_THAT(workers(book.holders(0xFFFFFFFF, 0xFFFFFFFF)), ElementsAre(0));
    EXPECT_THAT(workers(book.holders(0xFFFFFFFF, 0xFFFFFFFE)), IsEmpty());
    EXPECT_THAT(workers(book.holders(1, 0)), IsEmpty());
}

TEST(ReplicaBook, EqualsTheDefinitionForRandomPieces) {
    std::mt19937 random(7);
    for (int round = 0; round < 50; ++round) {
        std::vector<Entry> entries;
        for (std::uint32_t worker = 0; worker < 6; ++worker) {
            Entry entry{worker, worker + 1, {}};
            for (std::uint32_t i = 0; i < random() % 5; ++i) {
                entry.pieces.push_back({static_cast<std::uint32_t>(random() % 2),
                                        static_cast<std::uint32_t>(random() % 30),
                                        static_cast<std::uint32_t>(random() % 12)});
            }
            entries.push_back(entry);
        }
        ReplicaBook book(entries);
        for (std::uint32_t layer = 0; layer < 2; ++layer) {
            for (std::uint32_t expert = 0; expert < 45; ++expert) {
                std::vector<std::uint32_t> expected;
                for (const Entry& entry : entries) {
                    bool holds = std::any_of(entry.pieces.begin(), entry.pieces.end(), [&](const Piece& piece) {
                        return piece.layer == layer && piece.contains(expert);
                    });
                    if (holds) expected.push_back(entry.worker);
                }
                EXPECT_EQ(workers(book.holders(layer, expert)), expected);
            }
        }
    }
}

// ---- the plan ------------------------------------------------------------------------------------------------------

constexpr double kForever = std::numeric_limits<double>::infinity();

LatencyModel::Line line(double fixed, double per_pair) {
    return {fixed, per_pair};
}

std::vector<Pair> one_row(std::uint32_t experts) {
    std::vector<Pair> pairs;
    for (std::uint32_t expert = 0; expert < experts; ++expert)
        pairs.push_back({0, expert});
    return pairs;
}

std::size_t planned_for(const CallPlan& plan, std::uint32_t worker) {
    for (const Share& share : plan.remote) {
        if (share.worker == worker) return share.pairs.size();
    }
    return 0;
}

TEST(CallPlan, WithoutWorkersEverythingIsLocal) {
    std::vector<Pair> pairs = one_row(8);
    CallPlan plan = plan_call({0, pairs, {}, std::nullopt, kForever}, ReplicaBook());
    EXPECT_THAT(plan.local, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
    EXPECT_THAT(plan.remote, IsEmpty());
}

TEST(CallPlan, UnheldExpertsAreLocalTheOthersRemoteWhateverTheyCost) {
    std::vector<Entry> entries{{0, 1, {{0, 2, 3}}}};
    std::vector<Quote> quotes{{0, 1, line(100, 100), 0}};
    std::vector<Pair> pairs = one_row(8);
    CallPlan plan = plan_call({0, pairs, quotes, std::nullopt, kForever}, ReplicaBook(entries));
    EXPECT_THAT(plan.local, ElementsAre(0, 1, 5, 6, 7));
    ASSERT_EQ(plan.remote.size(), 1);
    EXPECT_THAT(plan.remote[0].pairs, ElementsAre(2, 3, 4));
}

TEST(CallPlan, EqualReplicasShareTheWork) {
    std::vector<Entry> entries{{0, 1, {{0, 0, 8}}}, {1, 1, {{0, 0, 8}}}};
    std::vector<Quote> quotes{{0, 1, line(1e-3, 1e-3), 0}, {1, 1, line(1e-3, 1e-3), 0}};
    std::vector<Pair> pairs = one_row(8);
    CallPlan plan = plan_call({0, pairs, quotes, std::nullopt, kForever}, ReplicaBook(entries));
    EXPECT_EQ(planned_for(plan, 0), 4);
    EXPECT_EQ(planned_for(plan, 1), 4);
}

TEST(CallPlan, ASlowOrBusyReplicaGetsLess) {
    std::vector<Entry> entries{{0, 1, {{0, 0, 8}}}, {1, 1, {{0, 0, 8}}}};
    std::vector<Pair> pairs = one_row(8);
    std::vector<Quote> slow{{0, 1, line(50e-3, 1e-3), 0}, {1, 1, line(1e-3, 1e-3), 0}};
    EXPECT_EQ(planned_for(plan_call({0, pairs, slow, std::nullopt, kForever}, ReplicaBook(entries)), 0), 0);
    std::vector<Quote> busy{{0, 1, line(1e-3, 1e-3), 4e-3}, {1, 1, line(1e-3, 1e-3), 0}};
    EXPECT_EQ(planned_for(plan_call({0, pairs, busy, std::nullopt, kForever}, ReplicaBook(entries)), 0), 2);
}

TEST(CallPlan, ASecondFrameMustBeWorthIt) {
    std::vector<Entry> entries{{0, 1, {{0, 0, 8}}}, {1, 1, {{0, 0, 8}}}};
    std::vector<Quote> quotes{{0, 1, line(1e-4, 1e-7), 0}, {1, 1, line(1e-4, 1e-7), 0}};
    std::vector<Pair> pairs = one_row(8);
    EXPECT_EQ(plan_call({0, pairs, quotes, std::nullopt, kForever}, ReplicaBook(entries)).remote.size(), 1);
}

TEST(CallPlan, LocalTakesWhatIsFasterHere) {
    std::vector<Entry> entries{{0, 1, {{0, 0, 8}}}};
    std::vector<Quote> quotes{{0, 1, line(1e-3, 1e-3), 0}};
    std::vector<Pair> pairs = one_row(8);
    EXPECT_EQ(plan_call({0, pairs, quotes, line(0, 1e-4), kForever}, ReplicaBook(entries)).local.size(), 8);
    EXPECT_EQ(plan_call({0, pairs, quotes, line(1, 1), kForever}, ReplicaBook(entries)).local.size(), 0);
    CallPlan both = plan_call({0, pairs, quotes, line(0, 1e-3), kForever}, ReplicaBook(entries));
    EXPECT_NEAR(static_cast<double>(both.local.size()), 4, 1) << "both work at the same time";
}

TEST(CallPlan, NoWorkerIsAskedForMoreThanItCanAnswerInTime) {
    std::vector<Entry> entries{{0, 1, {{0, 0, 8}}}};
    std::vector<Quote> quotes{{0, 1, line(0, 1), 0}};
    std::vector<Pair> pairs = one_row(8);
    CallPlan plan = plan_call({0, pairs, quotes, std::nullopt, 5.5}, ReplicaBook(entries));
    EXPECT_EQ(planned_for(plan, 0), 5);
    EXPECT_EQ(plan.local.size(), 3);
}

TEST(CallPlan, AnExpertIsNotDividedAndAnOldPieceSetNotAsked) {
    std::vector<Entry> entries{{0, 1, {{0, 0, 2}}}, {1, 5, {{0, 0, 2}}}};
    std::vector<Pair> pairs;
    for (std::uint32_t row = 0; row < 10; ++row)
        pairs.push_back({row, row % 2});
    std::vector<Quote> quotes{{0, 1, line(0, 1), 0}, {1, 5, line(0, 1), 0}};
    CallPlan plan = plan_call({0, pairs, quotes, std::nullopt, kForever}, ReplicaBook(entries));
    ASSERT_EQ(plan.remote.size(), 2);
    EXPECT_THAT(plan.remote[0].pairs, ElementsAre(0, 2, 4, 6, 8));
    EXPECT_THAT(plan.remote[1].pairs, ElementsAre(1, 3, 5, 7, 9));
    quotes[1].epoch = 6;
    EXPECT_EQ(planned_for(plan_call({0, pairs, quotes, std::nullopt, kForever}, ReplicaBook(entries)), 1), 0);
}

TEST(CallPlan, EveryPairOnce) {
    std::mt19937 random(11);
    for (int round = 0; round < 100; ++round) {
        std::vector<Entry> entries;
        std::vector<Quote> quotes;
        for (std::uint32_t worker = 0; worker < random() % 6; ++worker) {
            auto first = static_cast<std::uint32_t>(random() % 16);
            entries.push_back({worker, 1, {{0, first, 1 + static_cast<std::uint32_t>(random() % 16)}}});
            double cost = static_cast<double>(random() % 100) * 1e-5;
            if (random() % 4 != 0) quotes.push_back({worker, 1, line(cost, cost), cost});
        }
        std::vector<Pair> pairs(random() % 64);
        for (Pair& pair : pairs) {
            pair = {static_cast<std::uint32_t>(random() % 9), static_cast<std::uint32_t>(random() % 20)};
        }
        std::optional<LatencyModel::Line> local;
        if (random() % 2 == 0) local = line(1e-4, 1e-4);
        CallPlan plan = plan_call({0, pairs, quotes, local, kForever}, ReplicaBook(entries));
        std::vector<int> times(pairs.size());
        for (std::uint32_t index : plan.local)
            ++times[index];
        for (const Share& share : plan.remote) {
            EXPECT_FALSE(share.pairs.empty());
            for (std::uint32_t index : share.pairs)
                ++times[index];
        }
        EXPECT_THAT(times, ::testing::Each(1));
    }
}

}  // namespace
}  // namespace kvasir
