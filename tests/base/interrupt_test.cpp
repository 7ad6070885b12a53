#include "base/interrupt.h"

#include <gtest/gtest.h>

#include <csignal>

namespace kvasir {
namespace {

// Each test is a process of its own under ctest; run together, they leave each other the default.
class InterruptTest : public testing::Test {
  protected:
    InterruptTest() { restore(); }
    ~InterruptTest() override { restore(); }

  private:
    static void restore() {
        for (const int number : {SIGINT, SIGTERM, SIGHUP})
            std::signal(number, SIG_DFL);
    }
};

TEST_F(InterruptTest, TheFirstSignalIsOnlyNotedAndNamesTheExitCode) {
    end_politely_on_signals();
    EXPECT_FALSE(interrupted());
    EXPECT_EQ(interruption_code(), 0);
    std::raise(SIGTERM);
    EXPECT_TRUE(interrupted());
    EXPECT_TRUE(interruption());
    std::raise(SIGINT);
    EXPECT_EQ(interruption_code(), 128 + SIGTERM);
}

TEST_F(InterruptTest, ASecondSignalOfAKindKills) {
    auto twice = [] {
        end_politely_on_signals();
        std::raise(SIGINT);
        std::raise(SIGINT);
    };
    EXPECT_EXIT(twice(), testing::KilledBySignal(SIGINT), "");
}

TEST_F(InterruptTest, WithNothingToCleanUpASignalEndsTheProcessWithALine) {
    auto once = [] {
        end_at_once_on_signals();
        std::raise(SIGTERM);
    };
    EXPECT_EXIT(once(), testing::ExitedWithCode(128 + SIGTERM), "kvasir: interrupted");
}

TEST_F(InterruptTest, WhatWasIgnoredAtTheStartStaysIgnored) {
    std::signal(SIGHUP, SIG_IGN);
    end_politely_on_signals();
    std::raise(SIGHUP);
    EXPECT_FALSE(interrupted());
    end_at_once_on_signals();
    std::raise(SIGHUP);
}

}  // namespace
}  // namespace kvasir
