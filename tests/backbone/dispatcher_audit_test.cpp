// Audits through the dispatcher: workers that lie, and workers that sign in every way but the right one.
#include <gmock/gmock.h>

#include <algorithm>

#include "backbone/dispatcher_fixture.h"
#include "backbone/evidence.h"
#include "base/temp_directory.h"
#include "expert/layer_weights.h"

namespace kvasir::test {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using testing::Not;
using State = WorkerStatus::State;

constexpr std::chrono::seconds kPatience{60};

// What the workers of dispatcher_fixture.h compute.
class FakeReference final : public AuditReference {
  public:
    FakeReference(Arithmetic arithmetic, bool intact) : arithmetic_(arithmetic), intact_(intact) {}
    Status compute(const AuditQuestion& question, std::span<std::byte> out) override {
        std::vector<float> row(question.terms.hidden);
        std::memcpy(row.data(), question.row.data(), question.row.size());
        std::vector<float> output(row.size());
        fake_expert(question.terms.layer, question.terms.expert, row, output);
        encode_rows(output_encoding(arithmetic_), output.size(), output, out);
        return {};
    }
    Status check_weights(std::uint32_t /*layer*/, std::uint32_t /*expert*/) override {
        if (intact_) return {};
        return fail(ErrorKind::mismatch, "this machine's weights are damaged");
    }

  private:
    const Arithmetic arithmetic_;
    const bool intact_;
};

class DispatcherAuditTest : public testing::TestWithParam<Arithmetic> {
  protected:
    FakeWorker::Options options(Signing signing, bool tls = true) const {
        FakeWorker::Options options;
        options.pieces = {{0, 0, 8}};
        options.tls = tls;
        options.signing = signing;
        options.arithmetic = wire_name(GetParam());
        return options;
    }
    // Every pair is audited.
    SwarmConfig config(const FakeWorker& worker, bool strict = false, bool intact = true) const {
        SwarmConfig config = test_config({&worker}, milliseconds(20'000));
        config.arithmetic = GetParam();
        config.audit_reference = std::make_shared<FakeReference>(GetParam(), intact);
        if (strict) config.strict_reference = std::make_shared<FakeReference>(GetParam(), intact);
        config.audit_budget = {.compute = 1, .first_share = 1, .last_share = 1};
        config.evidence = evidence_;
        config.timing.signature = milliseconds(200);
        // Long enough for a test to see that it is refused.
        config.timing.refused_retry = std::chrono::hours(1);
        return config;
    }
    void start(SwarmConfig config) {
        local_.arithmetic = GetParam();
        dispatcher_ = make_dispatcher(std::move(config));
        ASSERT_TRUE(dispatcher_->wait_for_workers(kPatience));
    }
    // A call of as many pairs as are audited of a request. True if every row of it is right.
    bool call() {
        TestCall call = TestCall::make(0, 2, {1, 5});
        call.arithmetic = GetParam();
        EXPECT_TRUE(dispatcher_->compute(call.call(), local_));
        return static_cast<bool>(call.correct());
    }
    WorkerStatus status() const { return dispatcher_->stats().workers.at(0); }
    ::testing::AssertionResult ends_refused(const std::string& reason) {
        const bool refused = eventually([&] {
            if (status().state == State::refused) return true;
            call();
            return false;
        });
        if (refused && status().reason.find(reason) != std::string::npos) return ::testing::AssertionSuccess();
        return ::testing::AssertionFailure() << state_name(status().state) << ": " << status().reason;
    }
    std::vector<std::filesystem::path> evidence_files() const {
        std::vector<std::filesystem::path> files;
        std::error_code none;
        for (const auto& entry : std::filesystem::directory_iterator(evidence_, none))
            files.push_back(entry.path());
        return files;
    }
    // There is evidence, all of it this worker's.
    void expect_evidence(const FakeWorker& worker) const {
        EXPECT_FALSE(evidence_files().empty());
        for (const std::filesystem::path& file : evidence_files()) {
            const Result<Evidence> evidence = load_evidence(file);
            ASSERT_TRUE(evidence) << evidence.error().message;
            const Result<NodeId> signer = signer_of(*evidence);
            ASSERT_TRUE(signer) << signer.error().message;
            EXPECT_EQ(*signer, *worker.endpoint().id);
            EXPECT_NE(evidence->answer, evidence->right_answer);
            EXPECT_EQ(evidence->context.arithmetic, wire_name(GetParam()));
        }
    }

    const TempDirectory directory_ = std::move(*TempDirectory::create("kvasir-audit-test-"));
    const std::filesystem::path evidence_ = directory_.path() / "evidence";
    FakeLocal local_;
    std::unique_ptr<Dispatcher> dispatcher_;
};

TEST_P(DispatcherAuditTest, HonestWorkersAreAuditedAndServeOn) {
    for (bool tls : {true, false}) {
        for (bool strict : {true, false}) {
            const FakeWorker worker(options(Signing::honest, tls));
            start(config(worker, strict));
            for (int i = 0; i < 20; ++i)
                EXPECT_TRUE(call());
            // Most are: the auditor may be behind.
            EXPECT_TRUE(eventually([&] { return status().audits >= 40; }));
            EXPECT_EQ(status().state, State::serving);
            EXPECT_EQ(status().failures, 0U);
            EXPECT_EQ(local_.pairs, 0U);
            EXPECT_TRUE(evidence_files().empty());
        }
    }
}

// What is audited after it was used may have been wrong: that is what `strict` is for.
TEST_P(DispatcherAuditTest, ALiarIsUsedUntilItIsConvicted) {
    FakeWorker worker(options(Signing::honest));
    worker.lie();
    start(config(worker));
    EXPECT_FALSE(call());
    EXPECT_TRUE(ends_refused("gave a wrong answer: layer 0, expert"));
    expect_evidence(worker);
    const std::uint64_t remote = dispatcher_->stats().pairs_remote;
    EXPECT_GT(remote, 0U);
    for (int i = 0; i < 10; ++i)
        EXPECT_TRUE(call());
    EXPECT_EQ(dispatcher_->stats().pairs_remote, remote);
    EXPECT_EQ(worker.connections(), 1U);
}

TEST_P(DispatcherAuditTest, StrictlyNoWrongRowIsEverUsed) {
    FakeWorker worker(options(Signing::honest));
    worker.lie();
    start(config(worker, true));
    for (int i = 0; i < 10; ++i)
        EXPECT_TRUE(call());
    EXPECT_TRUE(ends_refused("gave a wrong answer"));
    expect_evidence(worker);
    EXPECT_EQ(dispatcher_->stats().pairs_remote, 0U);
    EXPECT_TRUE(call());
}

// Until there is a verdict it is not asked, and says why.
TEST_P(DispatcherAuditTest, StrictlyWhoIsInDoubtIsNotAsked) {
    FakeWorker worker(options(Signing::never));
    worker.lie();
    start(config(worker, true));
    EXPECT_TRUE(call());
    const std::size_t asked = worker.seen().size();
    EXPECT_TRUE(eventually([&] {
        EXPECT_TRUE(call());
        EXPECT_NE(status().reason, "");
        return status().reason.find("gave a wrong answer") != std::string::npos;
    }));
    EXPECT_EQ(worker.seen().size(), asked);
}

// It was right for long; then it lies.
TEST_P(DispatcherAuditTest, StrictlyALateLieIsNotUsedEither) {
    FakeWorker worker(options(Signing::honest));
    start(config(worker, true));
    for (int i = 0; i < 20; ++i)
        EXPECT_TRUE(call());
    EXPECT_GT(dispatcher_->stats().pairs_remote, 0U);
    worker.lie();
    for (int i = 0; i < 20; ++i)
        EXPECT_TRUE(call());
    EXPECT_TRUE(ends_refused("gave a wrong answer"));
    expect_evidence(worker);
}

TEST_P(DispatcherAuditTest, WithoutKeysALiarIsConvictedWithoutEvidence) {
    for (bool strict : {true, false}) {
        FakeWorker worker(options(Signing::honest, false));
        worker.lie();
        start(config(worker, strict));
        EXPECT_EQ(call(), strict);
        EXPECT_TRUE(ends_refused("gave a wrong answer"));
        EXPECT_THAT(status().reason, HasSubstr("did not sign it"));
    }
    EXPECT_TRUE(evidence_files().empty());
}

TEST_P(DispatcherAuditTest, WhoseOwnWeightsAreDamagedConvictsNobody) {
    FakeWorker worker(options(Signing::honest));
    worker.lie();
    start(config(worker, false, false));
    for (int i = 0; i < 20; ++i)
        call();
    EXPECT_EQ(status().state, State::serving);
    EXPECT_TRUE(evidence_files().empty());
}

// ---- signing -------------------------------------------------------------------------------------------------------

// It may be a program of an older kind: no liar, but nobody to work with.
TEST_P(DispatcherAuditTest, WhoNeverSignsIsRefused) {
    const FakeWorker worker(options(Signing::never));
    start(config(worker));
    EXPECT_TRUE(call());
    EXPECT_TRUE(ends_refused("does not sign its answers"));
    EXPECT_TRUE(evidence_files().empty());
}

TEST_P(DispatcherAuditTest, WhoSignsBeforeItAnswersIsRefused) {
    const FakeWorker worker(options(Signing::before));
    start(config(worker));
    EXPECT_TRUE(call());
    EXPECT_TRUE(ends_refused("does not sign its answers"));
}

// Not to sign saves no liar.
TEST_P(DispatcherAuditTest, WhoLiesAndNeverSignsIsConvicted) {
    for (Signing signing : {Signing::never, Signing::before}) {
        FakeWorker worker(options(signing));
        worker.lie();
        start(config(worker));
        EXPECT_FALSE(call());
        EXPECT_TRUE(eventually([&] { return status().reason.find("gave a wrong answer") != std::string::npos; }));
        EXPECT_EQ(status().state, State::refused);
        EXPECT_THAT(status().reason, HasSubstr("did not sign it"));
    }
    EXPECT_TRUE(evidence_files().empty());
}

// Nor does it to be gone before the signature is due.
TEST_P(DispatcherAuditTest, WhoLiesAndLeavesIsConvicted) {
    FakeWorker worker(options(Signing::never));
    worker.lie();
    worker.behave(Fault::drain);
    start(config(worker));
    call();
    EXPECT_TRUE(eventually([&] { return status().reason.find("gave a wrong answer") != std::string::npos; }));
    EXPECT_EQ(status().state, State::refused);
}

TEST_P(DispatcherAuditTest, WhoSignsAnotherAnswerThanItGaveIsConvicted) {
    const FakeWorker worker(options(Signing::other_answer));
    start(config(worker));
    EXPECT_TRUE(call());
    EXPECT_TRUE(ends_refused("what it signed is not what it answered"));
    EXPECT_TRUE(evidence_files().empty());
}

TEST_P(DispatcherAuditTest, WhoLiesAndSignsAnotherAnswerIsConvicted) {
    FakeWorker worker(options(Signing::other_answer));
    worker.lie();
    start(config(worker));
    EXPECT_TRUE(ends_refused("did not sign it"));
    EXPECT_TRUE(evidence_files().empty());
}

TEST_P(DispatcherAuditTest, ABadSignatureConvicts) {
    const FakeWorker worker(options(Signing::bad_signature));
    start(config(worker));
    EXPECT_TRUE(call());
    EXPECT_TRUE(ends_refused("the signature is not one of these answers"));
    EXPECT_TRUE(evidence_files().empty());
}

TEST_P(DispatcherAuditTest, AnothersKeyIsRefused) {
    const FakeWorker worker(options(Signing::other_key));
    start(config(worker));
    EXPECT_TRUE(ends_refused("with another key than its own"));
    EXPECT_THAT(status().reason, Not(HasSubstr("wrong answer")));
}

TEST_P(DispatcherAuditTest, WhatIsSignedTwiceOrWasNeverAskedIsNothing) {
    for (Signing signing : {Signing::twice, Signing::unknown_requests}) {
        const FakeWorker worker(options(signing));
        start(config(worker));
        for (int i = 0; i < 20; ++i)
            EXPECT_TRUE(call());
        EXPECT_TRUE(eventually([&] { return status().audits >= 40; }));
        EXPECT_EQ(status().state, State::serving);
        EXPECT_EQ(status().failures, 0U);
    }
}

TEST_P(DispatcherAuditTest, AGarbledAttestationEndsTheConnection) {
    const FakeWorker worker(options(Signing::garbage));
    start(config(worker));
    EXPECT_TRUE(call());
    EXPECT_TRUE(eventually([&] {
        EXPECT_TRUE(call());
        return worker.connections() > 1;
    }));
    EXPECT_GT(status().failures, 0U);
    EXPECT_THAT(status().reason, Not(HasSubstr("wrong answer")));
}

TEST_P(DispatcherAuditTest, WithoutKeysAnAttestationEndsTheConnection) {
    const RawWorker worker([](int socket) {
        Welcome welcome;
        welcome.arithmetic = wire_name(GetParam());
        welcome.model_id = test_model();
        welcome.epoch = 1;
        welcome.pieces = {{0, 0, 8}};
        welcome.threads = 1;
        welcome.payload_limit = kPayloadLimit;
        welcome.window = 1;
        write_all(socket, frame_bytes(FrameType::welcome, 0, encode(welcome)));
        write_all(socket, frame_bytes(FrameType::attest, 0, {}));
        read_frame(socket);  // its end
    });
    SwarmConfig config = test_config({}, milliseconds(1000));
    config.workers = {worker.endpoint()};
    config.arithmetic = GetParam();
    dispatcher_ = make_dispatcher(std::move(config));
    EXPECT_TRUE(
        eventually([&] { return status().reason.find("ATTEST where there are no keys") != std::string::npos; }));
}

INSTANTIATE_TEST_SUITE_P(Arithmetics, DispatcherAuditTest, testing::Values(Arithmetic::portable, Arithmetic::ggml_cpu),
                         [](const auto& tested) { return tested.param == Arithmetic::portable ? "portable" : "ggml"; });

}  // namespace
}  // namespace kvasir::test
