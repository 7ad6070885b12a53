#include "backbone/dispatcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "backbone/dispatcher_fixture.h"

namespace kvasir::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using ::testing::HasSubstr;
using State = WorkerStatus::State;

constexpr milliseconds kPatient{60'000};  // a deadline that no test reaches
constexpr milliseconds kImpatient{150};   // one that faults run into

std::unique_ptr<FakeWorker> worker(std::vector<Piece> pieces, bool tls = false) {
    FakeWorker::Options options;
    options.pieces = std::move(pieces);
    options.tls = tls;
    return std::make_unique<FakeWorker>(std::move(options));
}

// Runs one call and checks every bit of it.
void run(Dispatcher& dispatcher, TestCall& call, LocalExperts& local) {
    std::fill(call.out.begin(), call.out.end(), -1.0F);
    Status status = dispatcher.compute(call.call(), local);
    ASSERT_TRUE(status) << status.error().message;
    ASSERT_TRUE(call.correct());
}

// Calls until the worker's state is `state`.
bool reaches(Dispatcher& dispatcher, std::size_t number, State state, TestCall& call, FakeLocal& local) {
    return eventually([&] {
        run(dispatcher, call, local);
        return dispatcher.stats().workers[number].state == state;
    });
}

// ---- without faults ------------------------------------------------------------------------------------------------

TEST(Dispatcher, WithoutWorkersEverythingIsComputedHere) {
    auto dispatcher = make_dispatcher(test_config({}, kPatient));
    EXPECT_TRUE(dispatcher->wait_for_workers(milliseconds(0)));
    FakeLocal local;
    TestCall call = TestCall::make(3, 4, {0, 5, 9});
    run(*dispatcher, call, local);
    EXPECT_EQ(dispatcher->stats().pairs_local, 12);
    EXPECT_EQ(dispatcher->stats().pairs_remote, 0);
}

class DispatcherTransport : public ::testing::TestWithParam<bool> {};

TEST_P(DispatcherTransport, HeldPairsGoOutTheOthersStay) {
    auto fake = worker({{0, 0, 4}}, GetParam());
    auto dispatcher = make_dispatcher(test_config({fake.get()}, kPatient));
    ASSERT_TRUE(dispatcher->wait_for_workers(minutes(1)));
    FakeLocal local;
    TestCall call = TestCall::make(0, 3, {1, 3, 6});
    run(*dispatcher, call, local);
    SwarmStats stats = dispatcher->stats();
    EXPECT_EQ(stats.pairs_remote, 6);
    EXPECT_EQ(stats.pairs_local, 3);
    EXPECT_EQ(local.pairs, 3);
    EXPECT_EQ(stats.workers[0].pairs, 6);
    EXPECT_EQ(stats.workers[0].experts_held, 4);
    EXPECT_GT(stats.bytes_sent, 3 * kHidden * sizeof(float));
    EXPECT_GT(stats.bytes_received, 6 * kHidden * sizeof(float));
    EXPECT_FALSE(fake->broken_rules());

    TestCall other_layer = TestCall::make(1, 2, {1});
    run(*dispatcher, other_layer, local);
    EXPECT_EQ(dispatcher->stats().pairs_local, 5);
}

INSTANTIATE_TEST_SUITE_P(PlainAndTls, DispatcherTransport, ::testing::Bool());

TEST(Dispatcher, OneFramePerWorkerAndOnlyTheRowsItNeeds) {
    auto first = worker({{0, 0, 4}});
    auto second = worker({{0, 4, 4}});
    auto dispatcher = make_dispatcher(test_config({first.get(), second.get()}, kPatient));
    ASSERT_TRUE(dispatcher->wait_for_workers(minutes(1)));
    FakeLocal local;
    TestCall call = TestCall::make(0, 4, {});
    call.pairs = {{0, 0}, {0, 1}, {1, 4}, {2, 2}, {2, 5}, {3, 6}, {3, 7}};
    call.out.resize(call.pairs.size() * kHidden);
    run(*dispatcher, call, local);
    auto real = [](const FakeWorker& fake) {
        std::vector<FakeWorker::Seen> seen = fake.seen();
        std::erase_if(seen, [](const FakeWorker::Seen& request) { return request.probe(); });
        return seen;
    };
    ASSERT_EQ(real(*first).size(), 1);
    EXPECT_EQ(real(*first)[0].rows, 2);
    EXPECT_EQ(real(*first)[0].pairs, 3);
    ASSERT_EQ(real(*second).size(), 1);
    EXPECT_EQ(real(*second)[0].rows, 3);
    EXPECT_EQ(real(*second)[0].pairs, 4);
    EXPECT_EQ(local.pairs, 0);
}

TEST(Dispatcher, LargeCallsAreCutToTheWorkersLimit) {
    FakeWorker::Options options;
    options.pieces = {{0, 0, 8}};
    options.payload_limit = 4096 + 10 * (kHidden * sizeof(float) + sizeof(Pair));
    FakeWorker fake(options);
    auto dispatcher = make_dispatcher(test_config({&fake}, kPatient));
    ASSERT_TRUE(dispatcher->wait_for_workers(minutes(1)));
    FakeLocal local;
    TestCall call = TestCall::make(0, 12, {0, 1, 2, 3, 4, 5, 6, 7});
    run(*dispatcher, call, local);
    EXPECT_EQ(dispatcher->stats().pairs_remote, 96);
    EXPECT_GE(fake.seen().size(), 10);
    EXPECT_FALSE(fake.broken_rules());
}

TEST(Dispatcher, ManyThreadsStayWithinTheWindow) {
    FakeWorker::Options options;
    options.pieces = {{0, 0, 8}};
    options.window = 3;
    FakeWorker fake(options);
    auto dispatcher = make_dispatcher(test_config({&fake}, kPatient));
    ASSERT_TRUE(dispatcher->wait_for_workers(minutes(1)));
    FakeLocal local;
    {
        std::vector<std::jthread> threads;
        for (std::uint32_t thread = 0; thread < 6; ++thread) {
            threads.emplace_back([&, thread] {
                TestCall call = TestCall::make(0, 1 + thread, {0, 2, 4, 9});
                for (int i = 0; i < 40; ++i)
                    run(*dispatcher, call, local);
            });
        }
    }
    SwarmStats stats = dispatcher->stats();
    EXPECT_EQ(stats.calls, 240);
    EXPECT_EQ(stats.pairs_local + stats.pairs_remote, 40 * 4 * (1 + 2 + 3 + 4 + 5 + 6));
    EXPECT_GT(stats.pairs_remote, 0);
    EXPECT_LE(fake.most_unanswered(), 3);
    EXPECT_FALSE(fake.broken_rules());
}

TEST(Dispatcher, RefusesCallsThatDoNotAddUp) {
    auto dispatcher = make_dispatcher(test_config({}, kPatient));
    FakeLocal local;
    TestCall call = TestCall::make(0, 2, {0});
    call.pairs[1].row = 2;
    EXPECT_FALSE(dispatcher->compute(call.call(), local));
    call.pairs[1].row = 1;
    call.out.pop_back();
    EXPECT_FALSE(dispatcher->compute(call.call(), local));
    TestCall empty = TestCall::make(0, 1, {});
    EXPECT_TRUE(dispatcher->compute(empty.call(), local));
}

TEST(Dispatcher, AFailingLocalReplicaIsAnErrorNotAWrongRow) {
    auto fake = worker({{0, 0, 4}});
    auto dispatcher = make_dispatcher(test_config({fake.get()}, kPatient));
    ASSERT_TRUE(dispatcher->wait_for_workers(minutes(1)));
    FakeLocal local;
    local.fails = true;
    TestCall held = TestCall::make(0, 1, {0, 1});
    run(*dispatcher, held, local);
    TestCall call = TestCall::make(0, 1, {0, 5});
    Status status = dispatcher->compute(call.call(), local);
    ASSERT_FALSE(status);
    EXPECT_THAT(status.error().message, HasSubstr("the disk is gone"));
}

// ---- measured costs ------------------------------------------------------------------------------------------------

TEST(DispatcherCosts, AWorkerSlowerThanThisMachineIsOnlyMeasured) {
    FakeWorker::Options options;
    options.pieces = {{0, 0, 8}};
    options.lateness = milliseconds(500);
    FakeWorker fake(options);
    fake.behave(Fault::late);
    SwarmConfig config = test_config({&fake}, kPatient);
    config.prefer_remote = false;
    auto dispatcher = make_dispatcher(config);
    ASSERT_TRUE(dispatcher->wait_for_workers(minutes(1)));
    FakeLocal local;
    TestCall call = TestCall::make(0, 3, {0, 1, 2});
    EXPECT_TRUE(eventually([&] {
        run(*dispatcher, call, local);
        return dispatcher->stats().workers[0].latency_ms > 0;
    }));
    for (int i = 0; i < 20; ++i)
        run(*dispatcher, call, local);
    EXPECT_EQ(dispatcher->stats().pairs_remote, 0);
    std::vector<FakeWorker::Seen> seen = fake.seen();
    EXPECT_TRUE(std::all_of(seen.begin(), seen.end(), [](const auto& request) { return request.probe(); }));
}

TEST(DispatcherCosts, AWorkerFasterThanThisMachineServes) {
    auto fake = worker({{0, 0, 8}});
    SwarmConfig config = test_config({fake.get()}, kPatient);
    config.prefer_remote = false;
    auto dispatcher = make_dispatcher(config);
    ASSERT_TRUE(dispatcher->wait_for_workers(minutes(1)));
    FakeLocal local;
    local.takes = milliseconds(100);
    TestCall call = TestCall::make(0, 3, {0, 1, 2});
    EXPECT_TRUE(eventually([&] {
        run(*dispatcher, call, local);
        return dispatcher->stats().pairs_remote >= 5 * call.pairs.size();
    }));
}

// ---- faults --------------------------------------------------------------------------------------------------------

class DispatcherFault : public ::testing::TestWithParam<std::tuple<Fault, bool>> {};

// Whatever a lone worker does wrong: no bit changes, and once it behaves it serves again.
TEST_P(DispatcherFault, ChangesNoBitAndIsForgiven) {
    auto [fault, tls] = GetParam();
    FakeWorker::Options options;
    options.pieces = {{0, 0, 8}};
    options.tls = tls;
    options.lateness = 2 * kImpatient;
    auto fake = std::make_unique<FakeWorker>(options);
    auto dispatcher = make_dispatcher(test_config({fake.get()}, kImpatient));
    ASSERT_TRUE(dispatcher->wait_for_workers(minutes(1)));
    FakeLocal local;
    TestCall call = TestCall::make(0, 3, {0, 3, 7, 12});
    fake->behave(fault);
    for (int i = 0; i < 10; ++i)
        run(*dispatcher, call, local);
    EXPECT_FALSE(fake->seen().empty());
    fake->behave(Fault::none);
    std::uint64_t before = dispatcher->stats().pairs_remote;
    EXPECT_TRUE(eventually([&] {
        run(*dispatcher, call, local);
        return dispatcher->stats().pairs_remote > before;
    }));
    SwarmStats stats = dispatcher->stats();
    EXPECT_EQ(stats.pairs_local + stats.pairs_remote, stats.calls * call.pairs.size());
    EXPECT_FALSE(fake->broken_rules());
}

INSTANTIATE_TEST_SUITE_P(All, DispatcherFault,
                         ::testing::Combine(::testing::Values(Fault::silent, Fault::late, Fault::wrong_count,
                                                              Fault::wrong_hidden, Fault::error, Fault::close,
                                                              Fault::garbage, Fault::duplicate, Fault::unknown_id,
                                                              Fault::epoch_change, Fault::drain),
                                            ::testing::Bool()));

TEST(Dispatcher, ASilentWorkerCostsOneDeadlineAndIsSetAside) {
    auto fake = worker({{0, 0, 8}});
    SwarmConfig config = test_config({fake.get()}, kImpatient);
    config.timing.set_aside_first = milliseconds(600'000);
    config.timing.set_aside_longest = milliseconds(600'000);
    auto dispatcher = make_dispatcher(config);
    ASSERT_TRUE(dispatcher->wait_for_workers(minutes(1)));
    fake->behave(Fault::silent);
    FakeLocal local;
    TestCall call = TestCall::make(0, 2, {0, 1});
    for (int i = 0; i < 5; ++i)
        run(*dispatcher, call, local);
    SwarmStats stats = dispatcher->stats();
    EXPECT_EQ(stats.workers[0].state, State::set_aside);
    EXPECT_THAT(stats.workers[0].reason, HasSubstr("in time"));
    EXPECT_LE(stats.pairs_hedged, 4) << "only the first call may have asked it";
    EXPECT_EQ(stats.pairs_local, 20);
    EXPECT_TRUE(eventually([&] { return fake->cancels() > 0; }));
}

TEST(Dispatcher, AReplicaAnswersForAStalledWorker) {
    auto first = worker({{0, 0, 8}});
    // So much slower that the first is the one that is asked.
    FakeWorker::Options slower;
    slower.pieces = {{0, 0, 8}};
    slower.lateness = milliseconds(30);
    auto second = std::make_unique<FakeWorker>(slower);
    second->behave(Fault::late);
    SwarmConfig config = test_config({first.get(), second.get()}, kPatient);
    config.timing.shortest_deadline = milliseconds(2000);
    config.timing.set_aside_first = milliseconds(600'000);
    config.timing.set_aside_longest = milliseconds(600'000);
    auto dispatcher = make_dispatcher(config);
    ASSERT_TRUE(dispatcher->wait_for_workers(minutes(1)));
    FakeLocal local;
    TestCall call = TestCall::make(0, 4, {0, 1, 2, 3, 4, 5, 6, 7});
    // Both must have been measured, or there is no deadline but the longest.
    ASSERT_TRUE(eventually([&] {
        run(*dispatcher, call, local);
        return first->seen().size() > 8 && second->seen().size() > 8;
    }));
    first->behave(Fault::silent);
    ASSERT_TRUE(reaches(*dispatcher, 0, State::set_aside, call, local));
    EXPECT_EQ(dispatcher->stats().workers[1].state, State::serving);
    std::uint64_t remote = dispatcher->stats().pairs_remote;
    run(*dispatcher, call, local);
    EXPECT_EQ(dispatcher->stats().pairs_remote, remote + call.pairs.size()) << "the replica serves alone";
}

TEST(Dispatcher, ALiarIsDisconnectedByName) {
    for (auto [fault, text] : {std::pair(Fault::wrong_count, "were asked for"),
                               std::pair(Fault::wrong_hidden, "were asked for"), std::pair(Fault::garbage, "RESULT")}) {
        auto fake = worker({{0, 0, 8}});
        SwarmConfig config = test_config({fake.get()}, kPatient);
        config.timing.reconnect_first = milliseconds(600'000);
        config.timing.reconnect_longest = milliseconds(600'000);
        auto dispatcher = make_dispatcher(config);
        ASSERT_TRUE(dispatcher->wait_for_workers(minutes(1)));
        fake->behave(fault);
        FakeLocal local;
        TestCall call = TestCall::make(0, 2, {0, 1});
        run(*dispatcher, call, local);
        WorkerStatus status = dispatcher->stats().workers[0];
        EXPECT_EQ(status.state, State::connecting);
        EXPECT_THAT(status.reason, HasSubstr(text));
        EXPECT_EQ(status.failures, 1);
    }
}

TEST(Dispatcher, ARecipeAWorkerCannotComputeCostsItThatLayerOnly) {
    FakeWorker::Options options;
    options.pieces = {{0, 0, 8}, {1, 0, 8}};
    options.error_code = WireErrorCode::recipe;
    FakeWorker fake(options);
    auto dispatcher = make_dispatcher(test_config({&fake}, kPatient));
    ASSERT_TRUE(dispatcher->wait_for_workers(minutes(1)));
    fake.behave(Fault::error);
    FakeLocal local;
    TestCall call = TestCall::make(0, 2, {0, 1});
    run(*dispatcher, call, local);
    fake.behave(Fault::none);
    run(*dispatcher, call, local);
    EXPECT_EQ(dispatcher->stats().pairs_remote, 0);
    TestCall other = TestCall::make(1, 2, {0, 1});
    run(*dispatcher, other, local);
    EXPECT_EQ(dispatcher->stats().pairs_remote, 4);
}

TEST(Dispatcher, PiecesMoveWithAnUpdate) {
    auto fake = worker({{0, 0, 4}});
    auto dispatcher = make_dispatcher(test_config({fake.get()}, kPatient));
    ASSERT_TRUE(dispatcher->wait_for_workers(minutes(1)));
    FakeLocal local;
    TestCall call = TestCall::make(0, 1, {0, 4});
    run(*dispatcher, call, local);
    fake->update({{0, 4, 1}});
    EXPECT_TRUE(eventually([&] { return dispatcher->stats().workers[0].experts_held == 1; }));
    std::uint64_t here = local.pairs;
    run(*dispatcher, call, local);
    EXPECT_EQ(local.pairs, here + 1);
    fake->update({});
    EXPECT_TRUE(eventually([&] { return dispatcher->stats().workers[0].experts_held == 0; }));
    run(*dispatcher, call, local);
    EXPECT_EQ(local.pairs, here + 3);
    EXPECT_FALSE(fake->broken_rules()) << "it was asked for what it did not hold";
}

TEST(Dispatcher, AWorkerComesBack) {
    auto fake = worker({{0, 0, 8}}, true);
    auto dispatcher = make_dispatcher(test_config({fake.get()}, kPatient));
    ASSERT_TRUE(dispatcher->wait_for_workers(minutes(1)));
    FakeLocal local;
    TestCall call = TestCall::make(0, 1, {0, 4});
    run(*dispatcher, call, local);
    fake->drop_connections();
    ASSERT_TRUE(eventually([&] { return fake->connections() == 2; }));
    EXPECT_TRUE(reaches(*dispatcher, 0, State::serving, call, local));
}

// ---- refusals ------------------------------------------------------------------------------------------------------

void expect_refused(SwarmConfig config, const std::string& reason) {
    auto dispatcher = make_dispatcher(std::move(config));
    EXPECT_FALSE(dispatcher->wait_for_workers(minutes(1)));
    ASSERT_TRUE(eventually([&] { return dispatcher->stats().workers[0].state == State::refused; }));
    EXPECT_THAT(dispatcher->stats().workers[0].reason, HasSubstr(reason));
    FakeLocal local;
    TestCall call = TestCall::make(0, 2, {0, 4});
    run(*dispatcher, call, local);
    EXPECT_EQ(dispatcher->stats().pairs_remote, 0);
}

TEST(DispatcherRefusal, AnotherModel) {
    FakeWorker::Options options;
    options.model_id[0] = std::byte{1};
    FakeWorker fake(options);
    SwarmConfig config = test_config({&fake}, kPatient);
    config.timing.refused_retry = milliseconds(600'000);
    expect_refused(config, "model 01");
}

TEST(DispatcherRefusal, AnotherArithmetic) {
    FakeWorker::Options options;
    options.arithmetic = "test/2";
    FakeWorker fake(options);
    SwarmConfig config = test_config({&fake}, kPatient);
    config.timing.refused_retry = milliseconds(600'000);
    expect_refused(config, "test/2");
}

TEST(DispatcherRefusal, AnErrorInsteadOfAWelcome) {
    FakeWorker::Options options;
    options.refusal = WireErrorCode::model;
    FakeWorker fake(options);
    SwarmConfig config = test_config({&fake}, kPatient);
    config.timing.refused_retry = milliseconds(600'000);
    expect_refused(config, "not you");
}

TEST(DispatcherRefusal, AnotherNodeThanPinned) {
    auto fake = worker({{0, 0, 8}}, true);
    SwarmConfig config = test_config({fake.get()}, kPatient);
    config.timing.refused_retry = milliseconds(600'000);
    config.workers[0].id = Digest{};
    expect_refused(config, "id");
}

TEST(DispatcherRefusal, NotAdmitted) {
    FakeWorker::Options options;
    options.tls = true;
    options.admit = [](const NodeId&) { return false; };
    FakeWorker fake(options);
    SwarmConfig config = test_config({&fake}, kPatient);
    config.timing.refused_retry = milliseconds(600'000);
    expect_refused(config, "admit");
}

TEST(DispatcherRefusal, IsTriedAgain) {
    FakeWorker::Options options;
    options.refusal = WireErrorCode::not_admitted;
    FakeWorker fake(options);
    auto dispatcher = make_dispatcher(test_config({&fake}, kPatient));
    EXPECT_TRUE(eventually([&] { return fake.connections() >= 3; }));
}

// ---- bytes that are no protocol
// --------------------------------------------------------------------------------------

void welcome_raw(int socket, std::uint32_t pieces_of_layer_0) {
    Welcome message;
    message.build = "raw";
    message.arithmetic = wire_name(Arithmetic::ggml_cpu);
    message.model_id = test_model();
    message.epoch = 1;
    message.pieces = {{0, 0, pieces_of_layer_0}};
    message.payload_limit = kPayloadLimit;
    message.window = 8;
    write_all(socket, frame_bytes(FrameType::welcome, 0, encode(message)));
}

void survive(RawWorker& raw) {
    SwarmConfig config = test_config({}, kImpatient);
    config.workers = {raw.endpoint()};
    auto dispatcher = make_dispatcher(std::move(config));
    FakeLocal local;
    TestCall call = TestCall::make(0, 2, {0, 1, 9});
    EXPECT_TRUE(eventually([&] {
        run(*dispatcher, call, local);
        return dispatcher->stats().workers[0].failures >= 2;
    }));
    EXPECT_EQ(dispatcher->stats().pairs_remote, 0);
}

TEST(DispatcherRawBytes, GarbageAfterTheWelcome) {
    RawWorker raw([](int socket) {
        welcome_raw(socket, 8);
        if (read_frame(socket)) write_all(socket, ByteVector(333, std::byte{0x5A}));
    });
    survive(raw);
}

TEST(DispatcherRawBytes, AnAnswerCutShort) {
    RawWorker raw([](int socket) {
        welcome_raw(socket, 8);
        std::optional<Frame> frame = read_frame(socket);
        if (!frame) return;
        ByteVector bytes = frame_bytes(FrameType::result, frame->request, ByteVector(400));
        bytes.resize(100);
        write_all(socket, bytes);
    });
    survive(raw);
}

TEST(DispatcherRawBytes, AnAnswerThatDripsBeyondTheDeadline) {
    RawWorker raw([](int socket) {
        welcome_raw(socket, 8);
        std::optional<Frame> frame = read_frame(socket);
        if (!frame) return;
        ByteVector bytes = frame_bytes(FrameType::result, frame->request, ByteVector(400));
        for (std::size_t i = 0; i < 40; ++i) {
            if (!write_all(socket, ByteSpan(bytes).subspan(i, 1))) return;
            std::this_thread::sleep_for(milliseconds(10));
        }
    });
    survive(raw);
}

TEST(DispatcherRawBytes, NothingAfterHello) {
    RawWorker raw([](int socket) { read_frame(socket); });
    SwarmConfig config = test_config({}, kImpatient);
    config.workers = {raw.endpoint()};
    config.timing.connect = milliseconds(100);
    auto dispatcher = make_dispatcher(std::move(config));
    EXPECT_TRUE(eventually([&] { return dispatcher->stats().workers[0].reason.find("HELLO") != std::string::npos; }));
    EXPECT_EQ(dispatcher->stats().workers[0].state, State::connecting);
}

// A stopped process still accepts and keeps its connections; a ping finds it out.
TEST(DispatcherRawBytes, SilenceIsFoundByAPing) {
    RawWorker raw([](int socket) {
        welcome_raw(socket, 8);
        while (read_frame(socket)) {
        }
    });
    SwarmConfig config = test_config({}, kPatient);
    config.workers = {raw.endpoint()};
    config.timing.ping_interval = milliseconds(20);
    config.timing.ping_deadline = milliseconds(50);
    config.timing.reconnect_first = milliseconds(600'000);
    config.timing.reconnect_longest = milliseconds(600'000);
    auto dispatcher = make_dispatcher(std::move(config));
    EXPECT_TRUE(eventually([&] { return dispatcher->stats().workers[0].reason.find("ping") != std::string::npos; }));
}

// ---- ends ----------------------------------------------------------------------------------------------------------

TEST(Dispatcher, EndsWithCallsInFlight) {
    auto fake = worker({{0, 0, 8}});
    auto dispatcher = make_dispatcher(test_config({fake.get()}, kPatient));
    ASSERT_TRUE(dispatcher->wait_for_workers(minutes(1)));
    fake->behave(Fault::silent);
    FakeLocal local;
    TestCall call = TestCall::make(0, 2, {0, 1});
    Status status;
    std::jthread caller([&, raw = dispatcher.get()] { status = raw->compute(call.call(), local); });
    ASSERT_TRUE(eventually([&] {
        std::vector<FakeWorker::Seen> seen = fake->seen();
        return std::any_of(seen.begin(), seen.end(), [](const auto& request) { return !request.probe(); });
    }));
    dispatcher.reset();
    caller.join();
    EXPECT_TRUE(status);
    EXPECT_TRUE(call.correct());
    EXPECT_EQ(local.pairs, 4);
}

TEST(Dispatcher, EndsWhileConnecting) {
    RawWorker raw([](int socket) { read_frame(socket); });
    SwarmConfig config = test_config({}, kPatient);
    config.workers = {raw.endpoint(), {{"127.0.0.1", 1}, std::nullopt}};
    for (int i = 0; i < 5; ++i) {
        auto dispatcher = make_dispatcher(config);
        EXPECT_FALSE(dispatcher->wait_for_workers(milliseconds(5)));
    }
}

TEST(Dispatcher, RefusesImpossibleConfigurations) {
    SwarmConfig config;
    config.workers = {{{"127.0.0.1", 7}, Digest{}}};
    EXPECT_FALSE(Dispatcher::create(config));
    config.workers = {{{"127.0.0.1", 7}, std::nullopt}, {{"127.0.0.1", 7}, std::nullopt}};
    EXPECT_FALSE(Dispatcher::create(config));
}

// ---- parse_worker --------------------------------------------------------------------------------------------------

TEST(ParseWorker, TakesAddressAndId) {
    std::string id(64, 'a');
    auto endpoint = parse_worker("host.example:99#" + id, false);
    ASSERT_TRUE(endpoint);
    EXPECT_EQ(endpoint->address, (Address{"host.example", 99}));
    EXPECT_EQ(to_hex(*endpoint->id), id);
    endpoint = parse_worker("[::1]#" + id, true);
    ASSERT_TRUE(endpoint);
    EXPECT_EQ(endpoint->address, (Address{"::1", kDefaultWorkerPort}));
    endpoint = parse_worker("127.0.0.1:7", true);
    ASSERT_TRUE(endpoint);
    EXPECT_FALSE(endpoint->id);
}

TEST(ParseWorker, RefusesTheRestByName) {
    auto refusal = [](std::string_view text, bool insecure) {
        auto endpoint = parse_worker(text, insecure);
        return endpoint ? std::string("accepted") : endpoint.error().message;
    };
    EXPECT_THAT(refusal("host:99", false), HasSubstr("lacks its node id"));
    EXPECT_THAT(refusal("host:99", true), HasSubstr("loopback"));
    EXPECT_THAT(refusal("host:99#12", false), HasSubstr("64 hex digits"));
    EXPECT_THAT(refusal(":99#" + std::string(64, '0'), false), HasSubstr("no host"));
    EXPECT_THAT(refusal("host:99999#" + std::string(64, '0'), false), HasSubstr("host:99999"));
    EXPECT_THAT(refusal("host:0#" + std::string(64, '0'), false), HasSubstr("port"));
}

}  // namespace
}  // namespace kvasir::test
