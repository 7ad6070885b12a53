// The dispatcher in portable/1: what workers answer is read as it was rounded for the way, and nothing else is taken.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backbone/dispatcher_fixture.h"

namespace kvasir::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using ::testing::HasSubstr;
using State = WorkerStatus::State;

constexpr milliseconds kPatient{60'000};  // a deadline that no test reaches
constexpr milliseconds kImpatient{150};   // one that faults run into

// One worker that holds experts 0 to 7 of layer 0, and a dispatcher, in one arithmetic.
struct OneWorker {
    OneWorker(Arithmetic arithmetic, milliseconds deadline, milliseconds reconnect) {
        FakeWorker::Options options;
        options.pieces = {{0, 0, 8}};
        options.arithmetic = wire_name(arithmetic);
        options.lateness = 2 * kImpatient;
        worker = std::make_unique<FakeWorker>(options);
        SwarmConfig config = test_config({worker.get()}, deadline);
        config.arithmetic = arithmetic;
        config.timing.reconnect_first = reconnect;
        config.timing.reconnect_longest = 10 * reconnect;
        dispatcher = make_dispatcher(std::move(config));
        local.arithmetic = arithmetic;
        call.arithmetic = arithmetic;
        EXPECT_TRUE(dispatcher->wait_for_workers(minutes(1)));
    }
    // Computes the call and checks every bit of it.
    void run() {
        std::fill(call.out.begin(), call.out.end(), -1.0F);
        Status status = dispatcher->compute(call.call(), local);
        ASSERT_TRUE(status) << status.error().message;
        ASSERT_TRUE(call.correct());
    }

    std::unique_ptr<FakeWorker> worker;
    std::unique_ptr<Dispatcher> dispatcher;
    FakeLocal local;
    TestCall call = TestCall::make(0, 3, {0, 3, 7, 12});
};

TEST(DispatcherPortable, WorkersAndThisMachineGiveTheSameRows) {
    OneWorker one(Arithmetic::portable, kPatient, milliseconds(10));
    one.run();
    const SwarmStats stats = one.dispatcher->stats();
    EXPECT_EQ(stats.pairs_remote, 9);
    EXPECT_EQ(stats.pairs_local, 3);
    EXPECT_FALSE(one.worker->broken_rules());
    // Otherwise nothing below tells the arithmetics apart.
    one.call.arithmetic = Arithmetic::ggml_cpu;
    EXPECT_FALSE(one.call.correct());
}

TEST(DispatcherPortable, ABackboneOfAnotherArithmeticIsNotServed) {
    FakeWorker::Options options;
    options.pieces = {{0, 0, 8}};
    FakeWorker fake(options);  // which answers HELLO with its own
    SwarmConfig config = test_config({&fake}, kPatient);
    config.arithmetic = Arithmetic::portable;
    config.timing.refused_retry = milliseconds(600'000);
    auto dispatcher = make_dispatcher(std::move(config));
    EXPECT_FALSE(dispatcher->wait_for_workers(minutes(1)));
    const WorkerStatus status = dispatcher->stats().workers[0];
    EXPECT_EQ(status.state, State::refused);
    EXPECT_THAT(status.reason, HasSubstr("portable/1"));
}

class DispatcherPortableFault : public ::testing::TestWithParam<std::tuple<Fault, Arithmetic>> {};

// Whatever a lone worker does wrong: no bit changes, and once it behaves it serves again.
TEST_P(DispatcherPortableFault, ChangesNoBitAndIsForgiven) {
    auto [fault, arithmetic] = GetParam();
    OneWorker one(arithmetic, kImpatient, milliseconds(10));
    one.worker->behave(fault);
    for (int i = 0; i < 10; ++i)
        one.run();
    one.worker->behave(Fault::none);
    const std::uint64_t before = one.dispatcher->stats().pairs_remote;
    EXPECT_TRUE(eventually([&] {
        one.run();
        return one.dispatcher->stats().pairs_remote > before;
    }));
    const SwarmStats stats = one.dispatcher->stats();
    EXPECT_EQ(stats.pairs_local + stats.pairs_remote, stats.calls * one.call.pairs.size());
    EXPECT_FALSE(one.worker->broken_rules());
}

INSTANTIATE_TEST_SUITE_P(Portable, DispatcherPortableFault,
                         ::testing::Combine(::testing::Values(Fault::silent, Fault::late, Fault::wrong_count,
                                                              Fault::wrong_hidden, Fault::close, Fault::garbage,
                                                              Fault::duplicate, Fault::unknown_id, Fault::drain,
                                                              Fault::other_encoding, Fault::bad_exponent),
                                            ::testing::Values(Arithmetic::portable)));
INSTANTIATE_TEST_SUITE_P(GgmlCpu, DispatcherPortableFault,
                         ::testing::Combine(::testing::Values(Fault::other_encoding),
                                            ::testing::Values(Arithmetic::ggml_cpu)));

class DispatcherPortableLiar : public ::testing::TestWithParam<std::tuple<Fault, Arithmetic, const char*>> {};

// An answer that cannot be one ends the connection, and its pairs are computed here.
TEST_P(DispatcherPortableLiar, IsDisconnectedByName) {
    auto [fault, arithmetic, text] = GetParam();
    OneWorker one(arithmetic, kPatient, milliseconds(600'000));
    one.worker->behave(fault);
    one.run();
    const SwarmStats stats = one.dispatcher->stats();
    EXPECT_EQ(stats.pairs_remote, 0);
    EXPECT_EQ(stats.pairs_local, one.call.pairs.size());
    EXPECT_EQ(stats.workers[0].state, State::connecting);
    EXPECT_EQ(stats.workers[0].failures, 1);
    EXPECT_THAT(stats.workers[0].reason, HasSubstr(text));
}

INSTANTIATE_TEST_SUITE_P(All, DispatcherPortableLiar,
                         ::testing::Values(std::tuple(Fault::bad_exponent, Arithmetic::portable, "exponent 200"),
                                           std::tuple(Fault::other_encoding, Arithmetic::portable, "another encoding"),
                                           std::tuple(Fault::other_encoding, Arithmetic::ggml_cpu, "another encoding"),
                                           std::tuple(Fault::wrong_count, Arithmetic::portable, "were asked for"),
                                           std::tuple(Fault::wrong_hidden, Arithmetic::portable, "were asked for"),
                                           std::tuple(Fault::garbage, Arithmetic::portable, "RESULT")));

}  // namespace
}  // namespace kvasir::test
