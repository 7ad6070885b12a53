// Random swarms, random calls, random faults: every output row is what its expert makes of its row, nothing hangs, and
// every pair is counted once.
#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "backbone/dispatcher_fixture.h"

namespace kvasir::test {
namespace {

using std::chrono::milliseconds;

constexpr std::uint32_t kLayers = 3;
constexpr std::uint32_t kExperts = 16;

std::vector<Piece> random_pieces(std::mt19937& random) {
    std::vector<Piece> pieces;
    std::uint32_t count = 1 + random() % 4;
    for (std::uint32_t i = 0; i < count; ++i) {
        auto first = static_cast<std::uint32_t>(random() % kExperts);
        pieces.push_back({static_cast<std::uint32_t>(random() % kLayers), first,
                          1 + static_cast<std::uint32_t>(random() % (kExperts - first))});
    }
    return normalized(std::move(pieces));
}

TestCall random_call(std::mt19937& random) {
    auto rows = 1 + static_cast<std::uint32_t>(random() % 6);
    TestCall call = TestCall::make(static_cast<std::uint32_t>(random() % kLayers), rows, {});
    std::uint32_t pairs = random() % 40;
    for (std::uint32_t i = 0; i < pairs; ++i) {
        call.pairs.push_back(
            {static_cast<std::uint32_t>(random() % rows), static_cast<std::uint32_t>(random() % (kExperts + 2))});
    }
    call.out.assign(call.pairs.size() * kHidden, -1.0F);
    return call;
}

// A fault for one request in `one_in`. Called on the worker's thread only.
std::function<Fault()> sometimes(std::uint32_t seed, std::uint32_t one_in) {
    return [random = std::mt19937(seed), one_in]() mutable {
        return random() % one_in == 0 ? static_cast<Fault>(random() % kFaults) : Fault::none;
    };
}

struct Swarm {
    std::vector<std::unique_ptr<FakeWorker>> workers;
    std::unique_ptr<Dispatcher> dispatcher;
};

Swarm random_swarm(std::mt19937& random, std::uint32_t count, Arithmetic arithmetic, bool tls, bool prefer_remote) {
    Swarm swarm;
    std::vector<const FakeWorker*> pointers;
    for (std::uint32_t i = 0; i < count; ++i) {
        FakeWorker::Options options;
        options.pieces = random_pieces(random);
        options.tls = tls;
        options.arithmetic = wire_name(arithmetic);
        options.window = 1 + static_cast<std::uint32_t>(random() % 8);
        options.lateness = milliseconds(10 + random() % 40);
        options.error_code = static_cast<WireErrorCode>(1 + random() % 12);
        swarm.workers.push_back(std::make_unique<FakeWorker>(std::move(options)));
        swarm.workers.back()->behave(sometimes(static_cast<std::uint32_t>(random()), 12));
        pointers.push_back(swarm.workers.back().get());
    }
    SwarmConfig config = test_config(pointers, milliseconds(20));
    config.arithmetic = arithmetic;
    config.prefer_remote = prefer_remote;
    swarm.dispatcher = make_dispatcher(std::move(config));
    return swarm;
}

// `threads` callers at once; the pieces change now and then.
void exercise(std::uint32_t seed, std::uint32_t workers, Arithmetic arithmetic, bool tls, bool prefer_remote,
              std::uint32_t threads) {
    std::mt19937 random(seed);
    Swarm swarm = random_swarm(random, workers, arithmetic, tls, prefer_remote);
    swarm.dispatcher->wait_for_workers(milliseconds(100));
    FakeLocal local;
    local.arithmetic = arithmetic;
    std::atomic<std::uint64_t> pairs = 0;
    {
        std::vector<std::jthread> callers;
        for (std::uint32_t thread = 0; thread < threads; ++thread) {
            callers.emplace_back([&, own = std::mt19937(seed * 31 + thread)]() mutable {
                for (int i = 0; i < 60; ++i) {
                    TestCall call = random_call(own);
                    call.arithmetic = arithmetic;
                    Status status = swarm.dispatcher->compute(call.call(), local);
                    ASSERT_TRUE(status) << status.error().message;
                    ASSERT_TRUE(call.correct());
                    pairs += call.pairs.size();
                }
            });
        }
        for (int i = 0; i < 5; ++i) {
            swarm.workers[random() % swarm.workers.size()]->update(random_pieces(random));
            std::this_thread::sleep_for(milliseconds(5));
        }
    }
    SwarmStats stats = swarm.dispatcher->stats();
    EXPECT_EQ(stats.calls, 60 * threads);
    EXPECT_EQ(stats.pairs_local + stats.pairs_remote, pairs);
    std::uint64_t of_workers = 0;
    for (const WorkerStatus& worker : stats.workers)
        of_workers += worker.pairs;
    EXPECT_EQ(of_workers, stats.pairs_remote);
    for (const auto& worker : swarm.workers)
        EXPECT_FALSE(worker->broken_rules());
}

class DispatcherProperty : public ::testing::TestWithParam<std::tuple<std::uint32_t, Arithmetic>> {
  protected:
    const std::uint32_t workers_ = std::get<0>(GetParam());
    const Arithmetic arithmetic_ = std::get<1>(GetParam());
};

TEST_P(DispatcherProperty, OneCaller) {
    exercise(workers_ * 7 + 1, workers_, arithmetic_, false, true, 1);
}

TEST_P(DispatcherProperty, ManyCallersOverTls) {
    exercise(workers_ * 7 + 2, workers_, arithmetic_, true, true, 4);
}

TEST_P(DispatcherProperty, MeasuredCosts) {
    exercise(workers_ * 7 + 3, workers_, arithmetic_, false, false, 3);
}

INSTANTIATE_TEST_SUITE_P(Workers, DispatcherProperty,
                         ::testing::Combine(::testing::Values(1, 2, 3, 5, 8),
                                            ::testing::Values(Arithmetic::ggml_cpu, Arithmetic::portable)));

}  // namespace
}  // namespace kvasir::test
