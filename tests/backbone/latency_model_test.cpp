#include "backbone/latency_model.h"

#include <gtest/gtest.h>

namespace kvasir {
namespace {

constexpr double kMs = 1e-3;

TEST(LatencyModel, KnowsNothingAtFirst) {
    LatencyModel model;
    EXPECT_FALSE(model.measured());
    EXPECT_EQ(model.estimate(8), 0);
    EXPECT_EQ(model.median(), 0);
    EXPECT_EQ(model.deadline(8, 0.01, 2), 2);
    model.missed(8, 1);
    EXPECT_FALSE(model.measured());
}

TEST(LatencyModel, EstimatesWhatItSaw) {
    LatencyModel model;
    for (int i = 0; i < 50; ++i)
        model.record(8, 3 * kMs, 2 * kMs);
    EXPECT_NEAR(model.estimate(8), 3 * kMs, 1e-6);
    EXPECT_NEAR(model.median(), 3 * kMs, 1e-9);
    // Computing scales with the pairs, the way there does not.
    EXPECT_NEAR(model.estimate(4), 2 * kMs, 1e-6);
    EXPECT_GT(model.estimate(64), 16 * kMs);
}

TEST(LatencyModel, KeepsSizesApart) {
    LatencyModel model;
    for (int i = 0; i < 50; ++i) {
        model.record(8, 1 * kMs, 0.5 * kMs);
        model.record(4096, 400 * kMs, 300 * kMs);
    }
    EXPECT_NEAR(model.estimate(8), 1 * kMs, 0.1 * kMs);
    EXPECT_NEAR(model.estimate(4096), 400 * kMs, 40 * kMs);
}

TEST(LatencyModel, DeadlineFollowsTheDistributionWithinItsBounds) {
    LatencyModel model;
    for (int i = 0; i < 3; ++i)
        model.record(8, 20 * kMs, 10 * kMs);
    EXPECT_EQ(model.deadline(8, 10 * kMs, 2), 2) << "too few answers to tell";
    for (int i = 0; i < 60; ++i)
        model.record(8, 20 * kMs, 10 * kMs);
    EXPECT_NEAR(model.deadline(8, 10 * kMs, 2), 80 * kMs, 1 * kMs);
    EXPECT_EQ(model.deadline(8, 100 * kMs, 2), 100 * kMs);
    EXPECT_EQ(model.deadline(8, 10 * kMs, 30 * kMs), 30 * kMs);
}

TEST(LatencyModel, OneHiccupDoesNotStretchTheDeadline) {
    LatencyModel model;
    for (int i = 0; i < 60; ++i)
        model.record(8, 5 * kMs, 4 * kMs);
    double before = model.deadline(8, 0, 2);
    model.record(8, 500 * kMs, 4 * kMs);
    for (int i = 0; i < 10; ++i)
        model.record(8, 5 * kMs, 4 * kMs);
    EXPECT_LT(model.deadline(8, 0, 2), 1.5 * before);
}

TEST(LatencyModel, StallsInAThirdOfTheAnswersAreNotUsual) {
    LatencyModel model;
    for (int i = 0; i < 100; ++i)
        model.record(8, (i % 3 == 0 ? 200 : 5) * kMs, 4 * kMs);
    EXPECT_LT(model.deadline(8, 0, 2), 100 * kMs);
}

TEST(LatencyModel, SlownessShowsAtOnceAndForAllSizes) {
    LatencyModel model;
    for (int i = 0; i < 60; ++i) {
        model.record(8, 2 * kMs, 1 * kMs);
        model.record(512, 100 * kMs, 90 * kMs);
    }
    double small = model.estimate(8);
    double large = model.estimate(512);
    model.missed(8, 50 * kMs);
    EXPECT_GT(model.estimate(8), 2 * small);
    EXPECT_GT(model.estimate(512), 2 * large);
}

TEST(LatencyModel, SlownessIsForgottenWithGoodAnswers) {
    LatencyModel model;
    for (int i = 0; i < 60; ++i)
        model.record(8, 2 * kMs, 1 * kMs);
    for (int i = 0; i < 3; ++i)
        model.record(8, 100 * kMs, 1 * kMs);
    EXPECT_GT(model.estimate(8), 5 * kMs);
    // Small probes tell about larger requests as well.
    for (int i = 0; i < 40; ++i)
        model.record(1, 1.2 * kMs, 0.2 * kMs);
    EXPECT_LT(model.estimate(1), 3 * kMs);
}

TEST(LatencyModel, TakesAnyNumbers) {
    LatencyModel model;
    model.record(0, 0, 5);
    model.record(0xFFFFFFFF, 1e9, -1);
    model.missed(0, 0);
    EXPECT_GE(model.estimate(0), 0);
    EXPECT_GE(model.estimate(0xFFFFFFFF), 0);
    double deadline = model.deadline(17, 0.01, 2);
    EXPECT_GE(deadline, 0.01);
    EXPECT_LE(deadline, 2);
}

}  // namespace
}  // namespace kvasir
