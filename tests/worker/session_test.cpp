#include "worker/session.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <future>

#include "net/signature.h"
#include "worker/fake_connection.h"
#include "worker/worker_fixture.h"

namespace kvasir::worker_test {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

class SessionTest : public WorkerTest {
  protected:
    SessionTest() {
        select_exact_kernels();
        batcher_ = std::move(*Batcher::create(1));
        context_.store = &store_;
        context_.batcher = batcher_.get();
        context_.refusals = &refusals_;
        context_.build = "worker under test";
        context_.threads = 3;
        context_.window = 2;
        context_.payload_limit = 100'000;
        context_.session_count = [] { return 7U; };
        session_ = std::make_shared<Session>(connection_, context_);
        session_->start([this](const auto&) { ++ends_; });
    }
    ~SessionTest() override {
        release();
        batcher_->stop();
        connection_->lose();
    }

    Hello hello(Arithmetic arithmetic = Arithmetic::ggml_cpu) const {
        Hello hello;
        hello.build = "backbone under test";
        hello.arithmetics = {"other/1", wire_name(arithmetic)};
        hello.model_id = store_.model_id();
        hello.payload_limit = kPayloadLimit;
        return hello;
    }
    void greet(Arithmetic arithmetic = Arithmetic::ggml_cpu) {
        connection_->deliver(FrameType::hello, 0, encode(hello(arithmetic)));
        EXPECT_EQ(connection_->next().type, FrameType::welcome);
    }
    WireError next_error(std::uint64_t request) {
        const Frame frame = connection_->next();
        EXPECT_EQ(frame.type, FrameType::error);
        EXPECT_EQ(frame.request, request);
        return decode_error(frame.payload).value_or(WireError{});
    }
    void expect_result(std::uint64_t request, const Question& question) {
        expect_result(*connection_, request, question);
    }
    void expect_result(FakeConnection& connection, std::uint64_t request, const Question& question) {
        const Frame frame = connection.next();
        ASSERT_EQ(frame.type, FrameType::result);
        EXPECT_EQ(frame.request, request);
        const auto result = decode_result(frame.payload);
        ASSERT_TRUE(result);
        EXPECT_EQ(result->encoding, output_encoding(question.arithmetic));
        EXPECT_TRUE(same_bits(result->rows, answer(question)));
    }
    // What `question` is answered with as a request of a greeted backbone.
    WireError refusal_of(const Question& question) {
        connection_->deliver(FrameType::compute, 50, encode(question.compute()));
        return next_error(50);
    }
    // Keeps the batcher's thread busy until release().
    void block() {
        std::promise<void> blocking;
        auto job = make_job(store_, ask(0, 1, 1), [&, this](const Result<ResultBuffer>&) {
            blocking.set_value();
            released_.get_future().wait();
        });
        blocked_ = true;
        ASSERT_TRUE(batcher_->submit(std::move(job)));
        blocking.get_future().wait();
    }
    void release() {
        if (std::exchange(blocked_, false)) released_.set_value();
    }

    const PieceStore store_ = open_store({write_slice_of(model_, "a.gguf", {{0, 0, 6}, {2, 2, 3}, {4, 0, 8}})});
    std::unique_ptr<Batcher> batcher_;
    LogThrottle refusals_;
    SessionContext context_;
    std::shared_ptr<FakeConnection> connection_ = std::make_shared<FakeConnection>();
    std::shared_ptr<Session> session_;
    int ends_ = 0;

  private:
    bool blocked_ = false;
    std::promise<void> released_;
};

TEST_F(SessionTest, WelcomesABackbone) {
    connection_->deliver(FrameType::hello, 0, encode(hello()));
    const Frame frame = connection_->next();
    ASSERT_EQ(frame.type, FrameType::welcome);
    const auto welcome = decode_welcome(frame.payload);
    ASSERT_TRUE(welcome) << welcome.error().message;
    EXPECT_EQ(welcome->arithmetic, wire_name(Arithmetic::ggml_cpu));
    EXPECT_EQ(welcome->model_id, store_.model_id());
    EXPECT_EQ(welcome->epoch, kEpoch);
    EXPECT_EQ(welcome->pieces, store_.pieces());
    EXPECT_EQ(welcome->window, 2U);
    EXPECT_EQ(welcome->threads, 3U);
    EXPECT_EQ(welcome->payload_limit, 100'000U);
    EXPECT_EQ(connection_->payload_limit, 100'000U);
}

TEST_F(SessionTest, RefusesAStrangersHelloByField) {
    const auto refused = [&](const Hello& hello) {
        auto connection = std::make_shared<FakeConnection>();
        auto session = std::make_shared<Session>(connection, context_);
        session->start(nullptr);
        connection->deliver(FrameType::hello, 0, encode(hello));
        const Frame frame = connection->next();
        EXPECT_EQ(frame.type, FrameType::error);
        EXPECT_EQ(frame.request, 0U);
        EXPECT_TRUE(connection->closed());
        connection->lose();
        return decode_error(frame.payload).value_or(WireError{});
    };
    Hello version = hello();
    version.oldest_version = version.newest_version = kProtocolVersion + 1;
    EXPECT_EQ(refused(version).code, WireErrorCode::version);
    Hello arithmetic = hello();
    arithmetic.arithmetics = {"other/1", "other/2"};
    EXPECT_EQ(refused(arithmetic).code, WireErrorCode::arithmetic);
    EXPECT_THAT(refused(arithmetic).text, HasSubstr("other/1, other/2"));
    for (Arithmetic known : known_arithmetics())
        EXPECT_THAT(refused(arithmetic).text, HasSubstr(wire_name(known)));
    Hello model = hello();
    model.model_id[0] ^= std::byte{1};
    EXPECT_EQ(refused(model).code, WireErrorCode::model);
    EXPECT_THAT(refused(model).text, HasSubstr(to_hex(model.model_id)));
}

TEST_F(SessionTest, RefusesGarbledAndSecondHellos) {
    auto connection = std::make_shared<FakeConnection>();
    auto session = std::make_shared<Session>(connection, context_);
    session->start(nullptr);
    connection->deliver(FrameType::hello, 0, ByteVector(3));
    EXPECT_EQ(connection->next().type, FrameType::error);
    EXPECT_TRUE(connection->closed());
    connection->lose();

    greet();
    connection_->deliver(FrameType::hello, 0, encode(hello()));
    EXPECT_EQ(next_error(0).code, WireErrorCode::bad_request);
    EXPECT_TRUE(connection_->closed());
}

TEST_F(SessionTest, ComputesWhatItHolds) {
    greet();
    const Question question = ask(0, 3, 2, 0, 6);
    connection_->deliver(FrameType::compute, 1, encode(question.compute()));
    expect_result(1, question);
    const Question offset = ask(2, 2, 3, 2, 3);
    connection_->deliver(FrameType::compute, 2, encode(offset.compute()));
    expect_result(2, offset);
}

TEST_F(SessionTest, TakesTheFirstArithmeticItKnows) {
    const std::string portable = wire_name(Arithmetic::portable);
    const std::string ggml = wire_name(Arithmetic::ggml_cpu);
    const auto agreed = [&](std::vector<std::string> arithmetics) {
        auto connection = std::make_shared<FakeConnection>();
        auto session = std::make_shared<Session>(connection, context_);
        session->start(nullptr);
        Hello offered = hello();
        offered.arithmetics = std::move(arithmetics);
        connection->deliver(FrameType::hello, 0, encode(offered));
        const auto welcome = decode_welcome(connection->next().payload);
        connection->lose();
        return welcome ? welcome->arithmetic : welcome.error().message;
    };
    EXPECT_EQ(agreed({"portable/2", portable, ggml}), portable);
    EXPECT_EQ(agreed({"portable/2", ggml, portable}), ggml);
    EXPECT_EQ(agreed({ggml}), ggml);
    EXPECT_EQ(agreed({portable}), portable);
}

TEST_F(SessionTest, ComputesInPortable) {
    greet(Arithmetic::portable);
    const Question floats = portable(ask(0, 3, 2, 0, 6));
    connection_->deliver(FrameType::compute, 1, encode(floats.compute()));
    expect_result(1, floats);
    const Question quantised = portable(ask(4, 5, 3));
    ASSERT_EQ(quantised.rows.size(), 5 * 2 * 36U);
    connection_->deliver(FrameType::compute, 2, encode(quantised.compute()));
    expect_result(2, quantised);
}

TEST_F(SessionTest, RefusesRowsThatAreNotEncodedAsTheWeightsTakeThem) {
    greet(Arithmetic::portable);
    Question question = portable(ask(4, 2, 2));
    question.encoding = RowEncoding::f32;
    question.rows = ask(4, 2, 2).rows;
    EXPECT_EQ(refusal_of(question).code, WireErrorCode::bad_request);
    EXPECT_THAT(refusal_of(question).text, HasSubstr("row encoding 0 is not what its weights take in portable"));
    question = portable(ask(4, 2, 2, 0, 6));
    question.layer = 0;
    EXPECT_THAT(refusal_of(question).text, HasSubstr("layer 0: row encoding 2"));
    // One that such rows cannot have, and some that no activations have, which a newer backbone might use.
    ByteVector request = encode(portable(ask(4, 2, 2)).compute());
    for (auto [encoding, code] : {std::pair(1, WireErrorCode::bad_request), std::pair(3, WireErrorCode::recipe),
                                  std::pair(4, WireErrorCode::recipe), std::pair(255, WireErrorCode::recipe)}) {
        request[40] = static_cast<std::byte>(encoding);
        connection_->deliver(FrameType::compute, 50, request);
        EXPECT_EQ(next_error(50).code, code) << encoding;
    }
    EXPECT_FALSE(connection_->closed());
    question = portable(ask(4, 2, 2));
    connection_->deliver(FrameType::compute, 51, encode(question.compute()));
    expect_result(51, question);
}

TEST_F(SessionTest, InGgmlsArithmeticRowsTravelAsTheyAre) {
    greet();
    EXPECT_EQ(refusal_of(portable(ask(4, 2, 2))).code, WireErrorCode::bad_request);
    const Question question = ask(4, 2, 2);
    connection_->deliver(FrameType::compute, 1, encode(question.compute()));
    expect_result(1, question);
}

TEST_F(SessionTest, AnAnswersLimitIsThatOfItsEncoding) {
    greet(Arithmetic::portable);
    const Question question = portable(ask(4, 200, 3));  // 600 rows of 130 bytes; as f32 they would be 256
    connection_->deliver(FrameType::compute, 1, encode(question.compute()));
    expect_result(1, question);
    const Question larger = portable(ask(4, 200, 5));
    EXPECT_EQ(refusal_of(larger).code, WireErrorCode::too_large);
}

TEST_F(SessionTest, ServesTwoArithmeticsAtOnce) {
    greet(Arithmetic::portable);
    auto other = std::make_shared<FakeConnection>();
    auto session = std::make_shared<Session>(other, context_);
    session->start(nullptr);
    other->deliver(FrameType::hello, 0, encode(hello(Arithmetic::ggml_cpu)));
    EXPECT_EQ(other->next().type, FrameType::welcome);
    block();
    const Question asked = ask(0, 3, 2, 0, 6);
    const Question in_portable = portable(asked);
    connection_->deliver(FrameType::compute, 1, encode(in_portable.compute()));
    other->deliver(FrameType::compute, 1, encode(asked.compute()));
    EXPECT_EQ(batcher_->waiting(), 2U);
    release();
    expect_result(1, in_portable);
    expect_result(*other, 1, asked);
    EXPECT_EQ(batcher_->stats().batches, 3U);  // what blocked, and one each
    other->lose();
}

TEST_F(SessionTest, NothingIsComputedBeforeHello) {
    connection_->deliver(FrameType::compute, 1, encode(ask(0, 1, 1, 0, 6).compute()));
    EXPECT_EQ(next_error(1).code, WireErrorCode::bad_request);
}

TEST_F(SessionTest, RefusesBadRequestsByNameAndLivesOn) {
    greet();
    Question question = ask(0, 2, 2, 0, 6);
    question.epoch = kEpoch + 1;
    EXPECT_EQ(refusal_of(question).code, WireErrorCode::epoch);

    question = ask(1, 2, 2, 0, 6);
    EXPECT_EQ(refusal_of(question).code, WireErrorCode::not_held);
    EXPECT_THAT(refusal_of(question).text, HasSubstr("layer 1"));

    question = ask(0, 2, 2, 0, 6);
    question.pairs.back().expert = 6;
    EXPECT_EQ(refusal_of(question).code, WireErrorCode::not_held);
    EXPECT_THAT(refusal_of(question).text, HasSubstr("expert 6"));
    question.pairs.back().expert = UINT32_MAX;
    EXPECT_NE(refusal_of(question).text, "");

    question = ask(0, 2, 2, 0, 6);
    question.pairs.back().row = 2;
    EXPECT_EQ(refusal_of(question).code, WireErrorCode::bad_request);

    question = ask(0, 2, 2, 0, 6);
    question.hidden = kHidden / 2;
    EXPECT_EQ(refusal_of(question).code, WireErrorCode::bad_request);
    EXPECT_THAT(refusal_of(question).text, HasSubstr("rows of 32"));

    question = ask(0, 2, 2, 0, 6);
    question.recipe.up_bias = true;
    EXPECT_EQ(refusal_of(question).code, WireErrorCode::recipe);

    question = ask(0, 200, 3, 0, 6);
    EXPECT_EQ(refusal_of(question).code, WireErrorCode::too_large);

    connection_->deliver(FrameType::compute, 50, ByteVector(17));
    EXPECT_EQ(next_error(50).code, WireErrorCode::bad_request);
    ByteVector cut = encode(ask(0, 2, 2, 0, 6).compute());
    cut.resize(cut.size() - 4);
    connection_->deliver(FrameType::compute, 50, cut);
    EXPECT_EQ(next_error(50).code, WireErrorCode::bad_request);
    for (FrameType type : {FrameType::result, FrameType::welcome, FrameType::update, FrameType::drain}) {
        connection_->deliver(type, 50);
        EXPECT_EQ(next_error(50).code, WireErrorCode::bad_request);
    }

    EXPECT_FALSE(connection_->closed());
    question = ask(0, 2, 2, 0, 6);
    connection_->deliver(FrameType::compute, 51, encode(question.compute()));
    expect_result(51, question);
}

TEST_F(SessionTest, EnforcesItsWindowAndDistinctIds) {
    greet();
    block();
    const Question question = ask(0, 1, 2, 0, 6);
    const ByteVector request = encode(question.compute());
    connection_->deliver(FrameType::compute, 1, request);
    connection_->deliver(FrameType::compute, 1, request);
    EXPECT_EQ(next_error(1).code, WireErrorCode::bad_request);
    connection_->deliver(FrameType::compute, 2, request);
    connection_->deliver(FrameType::compute, 3, request);
    EXPECT_EQ(next_error(3).code, WireErrorCode::overloaded);
    release();
    expect_result(1, question);
    expect_result(2, question);
    connection_->deliver(FrameType::compute, 3, request);
    expect_result(3, question);
}

TEST_F(SessionTest, CancelDropsAndFreesTheWindow) {
    greet();
    block();
    const Question question = ask(0, 1, 2, 0, 6);
    const ByteVector request = encode(question.compute());
    connection_->deliver(FrameType::compute, 1, request);
    connection_->deliver(FrameType::compute, 2, request);
    connection_->deliver(FrameType::cancel, 1);
    connection_->deliver(FrameType::cancel, 99);  // unknown: answered long ago
    connection_->deliver(FrameType::compute, 3, request);
    EXPECT_EQ(batcher_->waiting(), 2U);
    release();
    expect_result(2, question);
    expect_result(3, question);
    ASSERT_TRUE(batcher_->wait_idle(kLongWait));
    EXPECT_TRUE(connection_->quiet());
}

TEST_F(SessionTest, ALostBackbonesRequestsAreDropped) {
    greet();
    block();
    connection_->deliver(FrameType::compute, 1, encode(ask(0, 1, 2, 0, 6).compute()));
    EXPECT_EQ(batcher_->waiting(), 1U);
    connection_->lose();
    EXPECT_EQ(batcher_->waiting(), 0U);
    EXPECT_EQ(ends_, 1);
    session_->tick(Session::Clock::now() + seconds(1000));
    EXPECT_FALSE(connection_->closed());
}

TEST_F(SessionTest, AnswersPingsWithItsLoad) {
    greet();
    block();
    connection_->deliver(FrameType::compute, 1, encode(ask(0, 1, 2, 0, 6).compute()));
    connection_->deliver(FrameType::ping, 9);
    const Frame frame = connection_->next();
    EXPECT_EQ(frame.type, FrameType::pong);
    EXPECT_EQ(frame.request, 9U);
    const auto pong = decode_pong(frame.payload);
    ASSERT_TRUE(pong);
    EXPECT_EQ(pong->queued, 1U);
    EXPECT_EQ(pong->sessions, 7U);
}

TEST_F(SessionTest, DrainingRefusesButFinishes) {
    greet();
    block();
    const Question question = ask(0, 1, 2, 0, 6);
    connection_->deliver(FrameType::compute, 1, encode(question.compute()));
    session_->drain();
    EXPECT_EQ(connection_->next().type, FrameType::drain);
    EXPECT_EQ(refusal_of(question).code, WireErrorCode::draining);
    release();
    expect_result(1, question);
}

TEST_F(SessionTest, WhatIsLeftWhenTheBatcherStopsIsRefused) {
    greet();
    block();
    connection_->deliver(FrameType::compute, 1, encode(ask(0, 1, 2, 0, 6).compute()));
    auto stopping = std::async(std::launch::async, [this] { batcher_->stop(); });
    EXPECT_EQ(next_error(1).code, WireErrorCode::overloaded);
    release();
    stopping.get();
}

TEST_F(SessionTest, ASilentStrangerIsClosed) {
    const auto now = Session::Clock::now();
    session_->tick(now + seconds(5));
    EXPECT_FALSE(connection_->closed());
    session_->tick(now + seconds(20));
    ASSERT_TRUE(connection_->closed());
    EXPECT_THAT(connection_->closed()->message, HasSubstr("HELLO"));
}

TEST_F(SessionTest, AnIdleBackboneIsPingedAndADeadOneClosed) {
    greet();
    auto now = Session::Clock::now();
    session_->tick(now);
    session_->tick(now + seconds(10));
    EXPECT_TRUE(connection_->quiet());
    session_->tick(now += seconds(20));
    EXPECT_EQ(connection_->next().type, FrameType::ping);
    session_->tick(now + seconds(1));
    EXPECT_TRUE(connection_->quiet());
    connection_->deliver(FrameType::pong, 0, encode(Pong{}));
    session_->tick(now += seconds(40));
    EXPECT_FALSE(connection_->closed());
    session_->tick(now + seconds(16));
    EXPECT_EQ(connection_->next().type, FrameType::ping);
    session_->tick(now + seconds(50));
    ASSERT_TRUE(connection_->closed());
    EXPECT_THAT(connection_->closed()->message, HasSubstr("no sign of life"));
}

// A session with TLS: its backbone is known by its node id.
class SigningTest : public SessionTest {
  protected:
    SigningTest() {
        context_.identity = identity_;
        backbone_->peer_id = Digest{std::byte{17}};
        signing_ = std::make_shared<Session>(backbone_, context_);
        signing_->start(nullptr);
    }
    ~SigningTest() override { backbone_->lose(); }

    void greet_backbone(Arithmetic arithmetic = Arithmetic::ggml_cpu) {
        backbone_->deliver(FrameType::hello, 0, encode(hello(arithmetic)));
        EXPECT_EQ(backbone_->next().type, FrameType::welcome);
    }
    // The next frame that is no attestation; those before it are kept.
    Frame next_answer() {
        for (Frame frame = backbone_->next();; frame = backbone_->next()) {
            if (frame.type != FrameType::attest) return frame;
            attests_.push_back(std::move(frame));
        }
    }
    void ask_for(std::uint64_t request, const Question& question) {
        backbone_->deliver(FrameType::compute, request, encode(question.compute()));
        const Frame frame = next_answer();
        ASSERT_EQ(frame.type, FrameType::result);
        EXPECT_EQ(frame.request, request);
    }
    // Waits until what was answered has been handed to the signer as well.
    void settle() {
        std::promise<void> settled;
        ASSERT_TRUE(batcher_->submit(
            make_job(store_, ask(0, 1, 1, 0, 6), [&](const Result<ResultBuffer>&) { settled.set_value(); })));
        settled.get_future().wait();
    }
    // What was attested so far is exactly these answers.
    void expect_attested(const std::vector<std::pair<std::uint64_t, Question>>& answered) {
        while (!backbone_->quiet())
            attests_.push_back(backbone_->next());
        std::vector<AttestedAnswers> attested;
        for (const Frame& frame : std::exchange(attests_, {})) {
            ASSERT_EQ(frame.type, FrameType::attest);
            EXPECT_EQ(frame.request, 0U);
            const auto attestation = decode_attestation(frame.payload);
            ASSERT_TRUE(attestation) << attestation.error().message;
            EXPECT_EQ(sha256(attestation->key), identity_->id());
            const ByteSpan without = ByteSpan(frame.payload).first(frame.payload.size() - sizeof(Signature));
            const AttestationContext context{store_.model_id(), *backbone_->peer_id,
                                             wire_name(answered.front().second.arithmetic)};
            EXPECT_TRUE(verify(attestation->key, attested_text(context, without), attestation->signature));
            std::ranges::copy(attestation->answers, std::back_inserter(attested));
        }
        std::vector<AttestedAnswers> expected;
        for (const auto& [request, question] : answered) {
            const JobPtr job = make_job(store_, question, nullptr);
            expected.push_back(
                {request, 0, digest_answers(job->compute, output_encoding(question.arithmetic), answer(question))});
        }
        EXPECT_EQ(attested, expected);
    }

    const std::shared_ptr<const Identity> identity_ = std::make_shared<const Identity>(Identity::generate().value());
    std::shared_ptr<FakeConnection> backbone_ = std::make_shared<FakeConnection>();
    std::shared_ptr<Session> signing_;
    std::vector<Frame> attests_;
};

TEST_F(SigningTest, WhatWasAnsweredIsSignedAtTheNextTick) {
    greet_backbone();
    const Question first = ask(0, 3, 2, 0, 6);
    const Question second = ask(4, 2, 3);
    ask_for(1, first);
    ask_for(2, second);
    settle();
    signing_->tick(Session::Clock::now());
    expect_attested({{1, first}, {2, second}});
    signing_->tick(Session::Clock::now());
    EXPECT_TRUE(backbone_->quiet());
}

TEST_F(SigningTest, SignaturesNameTheArithmeticThatWasAgreed) {
    greet_backbone(Arithmetic::portable);
    const Question question = portable(ask(4, 2, 3));
    ask_for(1, question);
    settle();
    signing_->tick(Session::Clock::now());
    expect_attested({{1, question}});
}

// A worker that ends in good order leaves nothing unsigned.
TEST_F(SigningTest, WhatWasAnsweredIsSignedBeforeTheEnd) {
    greet_backbone();
    const Question question = ask(0, 3, 2, 0, 6);
    ask_for(1, question);
    settle();
    signing_->close({ErrorKind::unavailable, "this worker ends"});
    expect_attested({{1, question}});
    EXPECT_TRUE(backbone_->closed());
}

TEST_F(SigningTest, RefusalsAndCancelledRequestsAreNotSigned) {
    greet_backbone();
    block();
    backbone_->deliver(FrameType::compute, 1, encode(ask(0, 2, 2, 0, 6).compute()));
    backbone_->deliver(FrameType::cancel, 1);
    release();
    backbone_->deliver(FrameType::compute, 2, encode(ask(1, 1, 1).compute()));
    EXPECT_EQ(next_answer().type, FrameType::error);
    const Question question = ask(0, 3, 2, 0, 6);
    ask_for(3, question);
    settle();
    signing_->tick(Session::Clock::now());
    expect_attested({{3, question}});
}

TEST_F(SigningTest, WithoutTlsNothingIsSigned) {
    greet();
    const Question question = ask(0, 3, 2, 0, 6);
    connection_->deliver(FrameType::compute, 1, encode(question.compute()));
    expect_result(1, question);
    settle();
    session_->tick(Session::Clock::now());
    EXPECT_TRUE(connection_->quiet());
}

TEST_F(SigningTest, ABackboneThatSignsIsRefused) {
    greet_backbone();
    backbone_->deliver(FrameType::attest, 5);
    const Frame frame = next_answer();
    ASSERT_EQ(frame.type, FrameType::error);
    EXPECT_THAT(decode_error(frame.payload).value_or(WireError{}).text, HasSubstr("only a worker sends"));
}

}  // namespace
}  // namespace kvasir::worker_test
