// The promise, through real processes and sockets: whatever workers there are and whatever happens to them, `kvasir
// verify` finds the same logits and the same bytes of every expert output as without them, and in ggml-cpu as stock
// llama.cpp.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>
#include <tuple>

#include "e2e/chaos_proxy.h"
#include "e2e/cluster.h"

namespace kvasir::e2e {
namespace {

using testing::HasSubstr;

class SwarmTest : public testing::Test {
  protected:
    // A short proof: enough tokens to pass every layer many times, few enough for a slow machine.
    std::vector<std::string> verify_arguments(const std::vector<std::string>& endpoints,
                                              const std::string& tokens = "160") const {
        std::vector<std::string> arguments = {"verify", cluster_.model().string(), "--tokens", tokens,  "--threads",
                                              "1",      "--exact-tokens",          "0",        "--json"};
        std::vector<std::string> swarm = cluster_.backbone_arguments(endpoints);
        arguments.insert(arguments.end(), swarm.begin(), swarm.end());
        return arguments;
    }

    static void expect_identical(const Outcome& outcome) {
        ASSERT_EQ(outcome.exit_code, 0) << outcome.out << outcome.err;
        nlohmann::json report = nlohmann::json::parse(outcome.out);
        EXPECT_TRUE(report.at("logits_identical").get<bool>()) << outcome.out;
        EXPECT_TRUE(report.at("expert_outputs_identical").get<bool>()) << outcome.out;
    }
    static std::uint64_t remote_pairs(const Outcome& outcome) {
        return nlohmann::json::parse(outcome.out).at("swarm").at("pairs_remote").get<std::uint64_t>();
    }
    static std::uint64_t local_pairs(const Outcome& outcome) {
        return nlohmann::json::parse(outcome.out).at("swarm").at("pairs_local").get<std::uint64_t>();
    }

    std::unique_ptr<ChildProcess> start_verify(const std::vector<std::string>& endpoints, const std::string& tokens) {
        std::vector<std::string> arguments = verify_arguments(endpoints, tokens);
        arguments.insert(arguments.begin(), KVASIR_PROGRAM);
        arguments.insert(arguments.end(), {"--deadline", "300"});
        return ChildProcess::start({.arguments = arguments, .environment = {}}).value();
    }
    Outcome finish(ChildProcess& process) {
        Result<int> code = process.wait(kPatience);
        return {code ? *code : -1, process.stdout_text(), process.stderr_text()};
    }

    Cluster cluster_;
};

class WorkerCounts : public SwarmTest, public testing::WithParamInterface<std::tuple<int, const char*>> {};

TEST_P(WorkerCounts, RandomOverlappingPiecesGiveIdenticalBits) {
    const auto [count, arithmetic] = GetParam();
    std::mt19937 random(static_cast<unsigned>(count) * 7919U);
    std::vector<Worker> workers;
    std::vector<std::string> endpoints;
    for (int i = 0; i < count; ++i) {
        unsigned first_layer = random() % 6;
        unsigned last_layer = first_layer + random() % (6 - first_layer);
        unsigned first = random() % 32;
        unsigned last = first + random() % (32 - first);
        auto slice = cluster_.slice(fmt::format("part{}", i), fmt::format("{}-{}", first_layer, last_layer),
                                    fmt::format("{}-{}", first, last));
        workers.push_back(cluster_.start_worker(fmt::format("worker{}", i), {slice}));
        endpoints.push_back(workers.back().endpoint());
    }
    std::vector<std::string> arguments = verify_arguments(endpoints);
    arguments.insert(arguments.end(), {"--arithmetic", arithmetic});
    Outcome outcome = kvasir(arguments);
    expect_identical(outcome);
    EXPECT_GT(remote_pairs(outcome), 0U);
}

INSTANTIATE_TEST_SUITE_P(Swarm, WorkerCounts,
                         testing::Combine(testing::Values(1, 2, 3, 5, 8), testing::Values("portable", "ggml-cpu")));

// A pair is computed once: what was delegated in time is not computed here as well.
TEST_F(SwarmTest, WhatIsRemoteIsNotComputedHere) {
    auto whole = cluster_.slice("whole", "0-5", "0-31");
    Worker worker = cluster_.start_worker("worker", {whole});
    Outcome outcome = kvasir(verify_arguments({worker.endpoint()}));
    expect_identical(outcome);
    EXPECT_GT(remote_pairs(outcome), 0U);
    // 160 tokens in batches and again one by one, top-4 of 6 layers.
    EXPECT_EQ(remote_pairs(outcome) + local_pairs(outcome), 160U * 2 * 4 * 6) << outcome.out;
}

TEST_F(SwarmTest, AWorkerKilledInTheMiddleChangesNothing) {
    auto whole = cluster_.slice("whole", "0-5", "0-31");
    auto half = cluster_.slice("half", "0-5", "0-15");
    Worker first = cluster_.start_worker("first", {whole});
    Worker second = cluster_.start_worker("second", {half});
    auto verify = start_verify({first.endpoint(), second.endpoint()}, "400");
    // Its workers serve, its models are loaded: what happens from here on happens in the middle of the proof.
    ASSERT_TRUE(verify->wait_for_line("comparing", kPatience));
    first.process->signal(SIGKILL);
    expect_identical(finish(*verify));
}

TEST_F(SwarmTest, AStalledWorkerChangesNothing) {
    auto whole = cluster_.slice("whole", "0-5", "0-31");
    Worker worker = cluster_.start_worker("worker", {whole});
    auto verify = start_verify({worker.endpoint()}, "200");
    ASSERT_TRUE(verify->wait_for_line("comparing", kPatience));
    worker.process->signal(SIGSTOP);
    Outcome outcome = finish(*verify);
    worker.process->signal(SIGCONT);
    // Stopped before it answered anything, there is nothing to prove and verify says so; it never says "different".
    if (outcome.exit_code == 4) {
        EXPECT_THAT(outcome.err, HasSubstr("worker"));
    } else {
        expect_identical(outcome);
    }
}

TEST_F(SwarmTest, AWorkerThatComesBackWithOtherPiecesChangesNothing) {
    auto whole = cluster_.slice("whole", "0-5", "0-31");
    auto other = cluster_.slice("other", "2-4", "7-20");
    Worker worker = cluster_.start_worker("worker", {whole});
    std::uint16_t port = worker.port;
    auto verify = start_verify({worker.endpoint()}, "400");
    ASSERT_TRUE(verify->wait_for_line("comparing", kPatience));
    worker.process->signal(SIGKILL);
    ASSERT_TRUE(worker.process->wait(kPatience));
    Worker again = cluster_.start_worker("worker", {other}, port);
    expect_identical(finish(*verify));
}

class Mischiefs : public SwarmTest, public testing::WithParamInterface<Mischief> {};

TEST_P(Mischiefs, OnTheWayChangesNothing) {
    auto whole = cluster_.slice("whole", "0-5", "0-31");
    auto half = cluster_.slice("half", "0-5", "10-31");
    Worker honest = cluster_.start_worker("honest", {half});
    Worker behind = cluster_.start_worker("behind", {whole});
    ChaosProxy proxy(behind.port);
    auto verify = start_verify({honest.endpoint(), behind.endpoint_through(proxy.port())}, "200");
    ASSERT_TRUE(verify->wait_for_line("comparing", kPatience));
    proxy.set(GetParam());
    expect_identical(finish(*verify));
    EXPECT_GT(proxy.deeds(), 0);
}

INSTANTIATE_TEST_SUITE_P(Swarm, Mischiefs,
                         testing::Values(Mischief::corrupt, Mischief::cut, Mischief::stall, Mischief::drip));

TEST_F(SwarmTest, AWrongPinIsRefusedByName) {
    auto part = cluster_.slice("part", "0", "0-7");
    Worker worker = cluster_.start_worker("worker", {part});
    std::string wrong = fmt::format("127.0.0.1:{}#{}", worker.port, cluster_.identity("somebody-else"));
    std::vector<std::string> arguments = verify_arguments({wrong});
    arguments.insert(arguments.end(), {"--wait", "20"});
    Outcome outcome = kvasir(arguments);
    EXPECT_EQ(outcome.exit_code, 4) << outcome.out << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(worker.id));
}

TEST_F(SwarmTest, AnUnknownBackboneIsRefusedWithAdvice) {
    auto part = cluster_.slice("part", "0", "0-7");
    Worker worker = cluster_.start_worker("worker", {part});
    std::string stranger = cluster_.identity("stranger");
    std::vector<std::string> arguments = {"verify",     cluster_.model().string(),
                                          "--tokens",   "32",
                                          "--threads",  "1",
                                          "--identity", cluster_.path("stranger.pem").string(),
                                          "--worker",   worker.endpoint(),
                                          "--wait",     "20"};
    Outcome outcome = kvasir(arguments);
    EXPECT_EQ(outcome.exit_code, 4) << outcome.out << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("admit"));
}

TEST_F(SwarmTest, AWorkerOfAnotherModelIsRefusedByName) {
    std::filesystem::path other = cluster_.path("other-model.gguf");
    Outcome made = kvasir({"synth", "--preset", "tiny-qwen3moe", "-o", other.string()});
    ASSERT_EQ(made.exit_code, 0) << made.err;
    ASSERT_EQ(kvasir({"publish", other.string()}).exit_code, 0);
    std::filesystem::path slice = cluster_.path("other-slice.gguf");
    Outcome sliced = kvasir({"slice", other.string(), "--layers", "0", "--experts", "0-3", "-o", slice.string()});
    ASSERT_EQ(sliced.exit_code, 0) << sliced.err;
    Worker worker = cluster_.start_worker("worker", {slice});
    std::vector<std::string> arguments = verify_arguments({worker.endpoint()}, "32");
    arguments.insert(arguments.end(), {"--wait", "20"});
    Outcome outcome = kvasir(arguments);
    EXPECT_EQ(outcome.exit_code, 4) << outcome.out << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("model"));
}

TEST_F(SwarmTest, AWorkerDrainsPolitelyOnSigterm) {
    auto part = cluster_.slice("part", "0", "0-7");
    Worker worker = cluster_.start_worker("worker", {part});
    worker.process->signal(SIGTERM);
    Result<int> code = worker.process->wait(kPatience);
    ASSERT_TRUE(code) << code.error().message;
    EXPECT_EQ(*code, 0) << worker.process->stderr_text();
}

// Mapped weights that go away can't be computed with, and can't be made up: the worker ends and says why.
TEST_F(SwarmTest, AWorkerWhoseSliceIsCutShortSaysSo) {
    const std::filesystem::path slice = cluster_.slice("cut", "0-5", "0-15");
    Worker worker = cluster_.start_worker("cut", {slice});
    Worker whole = cluster_.start_worker("whole", {cluster_.slice("whole", "0-5", "0-31")});
    std::filesystem::resize_file(slice, 4096);
    expect_identical(kvasir(verify_arguments({worker.endpoint(), whole.endpoint()})));
    Result<int> code = worker.process->wait(kPatience);
    ASSERT_TRUE(code.has_value());
    EXPECT_EQ(*code, exit_code(ErrorKind::io));
    EXPECT_THAT(worker.process->stderr_text(), HasSubstr("has become shorter"));
}

}  // namespace
}  // namespace kvasir::e2e
