#include "market/simulation.h"

#include <gtest/gtest.h>

namespace kvasir::market {
namespace {

SimulationOptions small() {
    SimulationOptions options;
    options.nodes = 600;
    options.days = 2;
    options.layers = 12;
    options.experts = 128;
    options.expert_bytes = 20'000'000;
    return options;
}

TEST(SimulationTest, EverythingIsCoveredFewMoveAndNobodyStarves) {
    Result<SimulationReport> report = simulate(small());
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_LT(report->warm_up_minutes, 60U);
    EXPECT_GE(report->covered_share, 0.999);
    EXPECT_EQ(report->uncovered_share, 0);
    EXPECT_LT(report->moves_per_node_day, 2);
    EXPECT_LE(report->most_moves_in_a_day, 24U);
    EXPECT_GE(report->fewest_mean_replicas, 3);
    EXPECT_GT(report->replicas_by_decile[9], report->replicas_by_decile[0]);
    EXPECT_GT(report->convictions, 0U);
    EXPECT_GT(report->enrolments, 1000U);
    EXPECT_GT(report->ledger_entries, 1000U);
    EXPECT_LT(report->gini_of_steady_by_day[1], report->gini_of_steady_by_day[0]);
    EXPECT_LT(report->median_wait_minutes, 10);
}

TEST(SimulationTest, OneSeedGivesOneCourse) {
    SimulationOptions options = small();
    options.nodes = 200;
    options.days = 1;
    const std::string first = to_json(simulate(options).value(), false);
    EXPECT_EQ(to_json(simulate(options).value(), false), first);
    options.seed = 2;
    EXPECT_NE(to_json(simulate(options).value(), false), first);
}

TEST(SimulationTest, AnHourWithoutTheHubLosesNoLeases) {
    SimulationOptions options = small();
    const SimulationReport without = simulate(options).value();
    options.outage_minutes = 60;
    const SimulationReport with = simulate(options).value();
    EXPECT_EQ(with.uncovered_share, 0);
    EXPECT_GE(with.covered_share, 0.99);
    EXPECT_LT(with.heartbeats, without.heartbeats);
    // Were leases lost, every node would have begun another.
    EXPECT_LT(with.enrolments, without.enrolments + 50);
}

TEST(SimulationTest, ASimulationNeedsSomebody) {
    SimulationOptions options = small();
    options.nodes = 0;
    EXPECT_EQ(simulate(options).error().kind, ErrorKind::usage);
}

TEST(GiniTest, KnownValues) {
    EXPECT_DOUBLE_EQ(gini({}), 0);
    EXPECT_DOUBLE_EQ(gini({0, 0}), 0);
    EXPECT_DOUBLE_EQ(gini({5, 5, 5}), 0);
    EXPECT_DOUBLE_EQ(gini({0, 0, 0, 8}), 0.75);
    EXPECT_DOUBLE_EQ(gini({3, 1}), 0.25);
}

}  // namespace
}  // namespace kvasir::market
