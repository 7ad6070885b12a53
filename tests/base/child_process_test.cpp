#include "base/child_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

namespace kvasir {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

std::unique_ptr<ChildProcess> shell(const std::string& script, std::vector<std::string> environment = {}) {
    return ChildProcess::start({.arguments = {"/bin/sh", "-c", script}, .environment = std::move(environment)}).value();
}

TEST(ChildProcessTest, OutputAndExitCode) {
    auto child = shell("echo out; echo err >&2; echo $NAME; exit 7", {"NAME=value"});
    EXPECT_EQ(child->wait(60s).value(), 7);
    EXPECT_TRUE(child->wait_for_line("value", 60s));
    EXPECT_TRUE(child->wait_for_line("err", 60s));
    EXPECT_THAT(child->stdout_text(), HasSubstr("out\n"));
}

TEST(ChildProcessTest, WaitsForAWholeLine) {
    auto child = shell("printf 'ready: '; sleep 0.2; echo port 7; sleep 60");
    EXPECT_EQ(child->wait_for_line("ready", 60s).value(), "ready: port 7");
    EXPECT_TRUE(child->running());
    EXPECT_EQ(child->wait(10ms).error().kind, ErrorKind::unavailable);
    child->signal(SIGTERM);
    EXPECT_EQ(child->wait(60s).value(), 128 + SIGTERM);
    child->signal(SIGTERM);  // harmless
}

TEST(ChildProcessTest, AMissingLineOrProgramIsAnError) {
    auto child = shell("echo broken >&2; exit 1");
    Result<std::string> line = child->wait_for_line("ready", 60s);
    ASSERT_FALSE(line);
    EXPECT_THAT(line.error().message, HasSubstr("'ready'"));
    auto missing = ChildProcess::start({.arguments = {"/no/such/program"}, .environment = {}});
    ASSERT_FALSE(missing);
    EXPECT_EQ(missing.error().kind, ErrorKind::io);
    EXPECT_THAT(missing.error().message, HasSubstr("/no/such/program"));
}

TEST(ChildProcessTest, IsKilledWithItsOwner) {
    int pid = 0;
    {
        auto child = shell("sleep 600");
        pid = child->pid();
    }
    EXPECT_EQ(::kill(pid, 0), -1);
}

}  // namespace
}  // namespace kvasir
