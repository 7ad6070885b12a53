#include "expert/team.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <limits>
#include <string>

namespace kvasir {
namespace {

constexpr std::uint64_t kWorthwhile = std::numeric_limits<std::uint64_t>::max();

TEST(Team, NoStageBeginsBeforeTheLastHasEnded) {
    for (int threads : {1, 2, 4}) {
        auto team = std::move(*Team::create(threads));
        std::array<std::atomic<int>, 8> ended{};
        std::atomic<int> early{0};
        std::vector<Team::Stage> stages;
        for (std::size_t i = 0; i < ended.size(); ++i) {
            stages.push_back([&, i](int /*thread*/, int count) {
                if (i > 0 && ended[i - 1] % count != 0) ++early;
                ++ended[i];
            });
        }
        for (int call = 1; call <= 50; ++call) {
            ASSERT_TRUE(team->run(stages, kWorthwhile));
            for (const std::atomic<int>& count : ended)
                ASSERT_EQ(count, call * threads);
        }
        EXPECT_EQ(early, 0);
    }
}

TEST(Team, ThreadsAreNumbered) {
    auto team = std::move(*Team::create(3));
    std::array<std::atomic<int>, 3> seen{};
    const std::array<Team::Stage, 1> stages = {[&](int thread, int threads) {
        EXPECT_EQ(threads, 3);
        ++seen.at(static_cast<std::size_t>(thread));
    }};
    ASSERT_TRUE(team->run(stages, kWorthwhile));
    for (const std::atomic<int>& times : seen)
        EXPECT_EQ(times, 1);
}

TEST(Team, LittleWorkIsDoneByOne) {
    auto team = std::move(*Team::create(3));
    std::atomic<int> calls{0};
    const std::array<Team::Stage, 1> stages = {[&](int /*thread*/, int threads) {
        EXPECT_EQ(threads, 1);
        ++calls;
    }};
    ASSERT_TRUE(team->run(stages, 1000));
    EXPECT_EQ(calls, 1);
}

TEST(Team, RefusesMoreStagesThanItHasRoomFor) {
    auto team = std::move(*Team::create(1));
    const std::vector<Team::Stage> stages(9, [](int, int) {});
    EXPECT_FALSE(team->run(stages, 1));
}

}  // namespace
}  // namespace kvasir
