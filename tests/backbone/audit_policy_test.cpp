#include "backbone/audit_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace kvasir {
namespace {

TEST(AuditShareTest, FallsWithCleanAuditsAndNeverToZero) {
    const AuditBudget budget;
    EXPECT_EQ(audit_share(budget, 0), 0.25);
    EXPECT_DOUBLE_EQ(audit_share(budget, 32), 0.125);
    EXPECT_DOUBLE_EQ(audit_share(budget, 160), 1.0 / 128);
    EXPECT_EQ(audit_share(budget, 192), 1.0 / 256);
    EXPECT_EQ(audit_share(budget, 1'000'000), 1.0 / 256);
    EXPECT_EQ(audit_share(budget, UINT64_MAX), 1.0 / 256);
    for (std::uint64_t clean = 0; clean < 300; ++clean)
        EXPECT_GE(audit_share(budget, clean), audit_share(budget, clean + 1));
}

TEST(ChoosePairsTest, NoMoreThanAllowedAndNoneTwice) {
    std::mt19937_64 random(1);
    EXPECT_TRUE(choose_pairs(random, 100, 0, 4).empty());
    EXPECT_TRUE(choose_pairs(random, 0, 1, 4).empty());
    EXPECT_TRUE(choose_pairs(random, 100, 1, 0).empty());
    EXPECT_THAT(choose_pairs(random, 3, 1, 4), testing::UnorderedElementsAre(0, 1, 2));
    for (int i = 0; i < 100; ++i) {
        const std::vector<std::uint32_t> chosen = choose_pairs(random, 20, 1, 4);
        const std::set<std::uint32_t> distinct(chosen.begin(), chosen.end());
        EXPECT_EQ(distinct.size(), 4U);
        EXPECT_LT(*distinct.rbegin(), 20U);
    }
}

// Below the most, each is chosen with the probability that is asked for.
TEST(ChoosePairsTest, EachWithItsShare) {
    std::mt19937_64 random(2);
    std::vector<int> times(8);
    constexpr int kRequests = 20'000;
    for (int i = 0; i < kRequests; ++i) {
        for (std::uint32_t pair : choose_pairs(random, times.size(), 1.0 / 8, times.size()))
            ++times[pair];
    }
    // The standard deviation is 47.
    for (int count : times)
        EXPECT_NEAR(count, kRequests / 8, 250);
}

// A worker that lies at the end of long requests only is found like any other.
TEST(ChoosePairsTest, OfTooManyAllHaveTheSameChance) {
    std::mt19937_64 random(3);
    constexpr int kRequests = 4000;
    std::vector<int> quarters(4);
    for (int i = 0; i < kRequests; ++i) {
        for (std::uint32_t pair : choose_pairs(random, 512, 0.25, 4))
            ++quarters[pair / 128];
    }
    // The standard deviation is 55.
    for (int count : quarters)
        EXPECT_NEAR(count, kRequests, 300);
}

TEST(RowsUntilCaughtTest, WithOneShareForAllItIsTheGeometricMean) {
    AuditBudget budget;
    budget.first_share = budget.last_share = 0.125;
    EXPECT_DOUBLE_EQ(rows_until_caught(budget, 1), 8);
    EXPECT_DOUBLE_EQ(rows_until_caught(budget, 0.25), 32);
}

// Whoever always lies falls with the first audit: one in four.
TEST(RowsUntilCaughtTest, AConstantLiarGivesFourRows) {
    EXPECT_DOUBLE_EQ(rows_until_caught({}, 1), 4);
}

TEST(RowsUntilCaughtTest, IsTheSumOfItsHeader) {
    const AuditBudget budget;
    for (double f : {0.5, 0.1, 0.03, 0.01}) {
        double sum = 0;
        double survives = 1;
        for (std::uint64_t k = 0; k < 20'000; ++k, survives *= 1 - f)
            sum += survives / audit_share(budget, k);
        EXPECT_NEAR(rows_until_caught(budget, f) / sum, 1, 1e-9) << f;
    }
}

// In requests of one pair each the formula is exact: what is left is chance, whose seed is fixed.
class Liars : public testing::TestWithParam<double> {};

TEST_P(Liars, AreCaughtAsSoonAsTheFormulaSays) {
    const double f = GetParam();
    const AuditBudget budget;
    const LiarTrial trial = try_liars(budget, f, 1, 20'000, 1);
    EXPECT_NEAR(trial.rows / rows_until_caught(budget, f), 1, 0.03);
    EXPECT_NEAR(trial.wrong / (f * rows_until_caught(budget, f)), 1, 0.03);
    EXPECT_GT(trial.rows_90, trial.rows);
}

INSTANTIATE_TEST_SUITE_P(Fractions, Liars, testing::Values(0.5, 0.1, 0.03));

// What a token asks for is answered as a whole: a few rows more, never fewer.
TEST(TryLiarsTest, LargerRequestsOnlyRoundUp) {
    const AuditBudget budget;
    const LiarTrial single = try_liars(budget, 0.1, 1, 5000, 2);
    const LiarTrial eight = try_liars(budget, 0.1, 8, 5000, 2);
    EXPECT_GT(eight.rows, single.rows * 0.95);
    EXPECT_LT(eight.rows, single.rows * 1.05 + 8);
}

TEST(TryLiarsTest, ASingleLiarIsEnough) {
    const LiarTrial trial = try_liars({}, 1, 1, 1, 7);
    EXPECT_EQ(trial.rows, trial.wrong);
    EXPECT_EQ(trial.rows, trial.rows_90);
    EXPECT_GE(trial.rows, 1);
}

}  // namespace
}  // namespace kvasir
