#include "backbone/auditor.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <future>
#include <memory>
#include <mutex>

#include "backbone/evidence_fixture.h"

namespace kvasir {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr std::chrono::seconds kPatience{60};
constexpr std::uint32_t kHidden = 4;

ByteVector row_of(const std::vector<float>& values) {
    const auto bytes = std::as_bytes(std::span(values));
    return {bytes.begin(), bytes.end()};
}

// A row of f32 with expert `expert`'s number, which stands for its output, in every column.
ByteVector right(std::uint32_t expert) {
    return row_of(std::vector<float>(kHidden, static_cast<float>(expert)));
}

// Every expert's output is its number, in every column.
class Numbers final : public AuditReference {
  public:
    explicit Numbers(bool intact = true) : intact_(intact) {}
    Status compute(const AuditQuestion& question, std::span<std::byte> out) override {
        if (question.terms.expert == kUnknown) return fail(ErrorKind::io, "expert {} cannot be read", kUnknown);
        if (question.terms.expert == kGate) {
            reached_.set_value();
            open_.get_future().wait();
        }
        std::ranges::copy(right(question.terms.expert), out.begin());
        return {};
    }
    Status check_weights(std::uint32_t /*layer*/, std::uint32_t expert) override {
        checked_ = true;
        if (intact_) return {};
        return fail(ErrorKind::mismatch, "expert {} is damaged", expert);
    }
    bool checked() const { return checked_; }
    // An audit of kGate waits for open().
    void wait_until_reached() { reached_.get_future().wait(); }
    void open() { open_.set_value(); }

    static constexpr std::uint32_t kUnknown = 999;
    static constexpr std::uint32_t kGate = 500;

  private:
    const bool intact_;
    std::atomic<bool> checked_ = false;
    std::promise<void> reached_;
    std::promise<void> open_;
};

class Worker final : public AuditSubject {
  public:
    void acquitted(std::uint64_t stamp) override {
        std::scoped_lock lock(mutex_);
        stamps_.push_back(stamp);
        changed_.notify_all();
    }
    void convicted(const std::string& what) override {
        std::scoped_lock lock(mutex_);
        verdict_ = what;
        changed_.notify_all();
    }
    bool wait_for(std::size_t acquittals) {
        std::unique_lock lock(mutex_);
        return changed_.wait_for(lock, kPatience, [&] { return stamps_.size() >= acquittals; });
    }
    std::string wait_for_conviction() {
        std::unique_lock lock(mutex_);
        changed_.wait_for(lock, kPatience, [&] { return !verdict_.empty(); });
        return verdict_;
    }
    std::string verdict() {
        std::scoped_lock lock(mutex_);
        return verdict_;
    }
    std::vector<std::uint64_t> stamps() {
        std::scoped_lock lock(mutex_);
        return stamps_;
    }

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<std::uint64_t> stamps_;
    std::string verdict_;
};

AuditQuestion question(std::uint32_t expert) {
    AuditQuestion asked;
    asked.terms.layer = 3;
    asked.terms.expert = expert;
    asked.terms.hidden = kHidden;
    asked.terms.recipe.activation = Activation::silu;
    asked.row = row_of({1, 2, 3, 4});
    return asked;
}

class AuditorTest : public testing::Test {
  protected:
    // All of a core, so that no test waits for the budget.
    AuditorOptions options() {
        AuditorOptions options;
        options.budget.compute = 1;
        options.keep = [this](const Evidence& evidence) -> Result<std::string> {
            std::scoped_lock lock(kept_mutex_);
            kept_.push_back(evidence);
            return "the drawer";
        };
        return options;
    }
    AuditCase make_case(std::uint32_t expert, ByteVector answer, std::uint64_t stamp = 0) {
        return {question(expert), std::move(answer), worker_, stamp, nullptr, false};
    }
    // … whose answer the worker has signed.
    AuditCase make_signed(std::uint32_t expert, ByteVector answer) const {
        Evidence evidence;
        evidence.context = {Digest{std::byte{1}}, Digest{std::byte{2}}, "portable/1"};
        evidence.terms = question(expert).terms;
        evidence.row = question(expert).row;
        evidence.answer = answer;
        test::sign_evidence(evidence, identity_);
        auto proof = std::make_shared<const SignedAnswers>(SignedAnswers{evidence.context, evidence.attestation});
        return {question(expert), std::move(answer), worker_, 0, std::move(proof), false};
    }
    std::vector<Evidence> kept() {
        std::scoped_lock lock(kept_mutex_);
        return kept_;
    }

    const Identity identity_ = Identity::generate().value();
    const std::shared_ptr<Worker> worker_ = std::make_shared<Worker>();
    const std::shared_ptr<Numbers> numbers_ = std::make_shared<Numbers>();

  private:
    std::mutex kept_mutex_;
    std::vector<Evidence> kept_;
};

TEST_F(AuditorTest, ChoosesAsThePolicyDoes) {
    Auditor auditor(numbers_, options());
    EXPECT_TRUE(auditor.choose(100, 0, 4).empty());
    EXPECT_THAT(auditor.choose(3, 1, 4), testing::UnorderedElementsAre(0, 1, 2));
    EXPECT_EQ(auditor.choose(1000, 1, 4).size(), 4U);
}

// What two backbones choose differs: nobody can foresee it from a program of his own.
TEST_F(AuditorTest, ChoosesUnforeseeably) {
    Auditor one(numbers_, options());
    Auditor other(numbers_, options());
    EXPECT_NE(one.choose(10'000, 0.5, 10'000), other.choose(10'000, 0.5, 10'000));
}

TEST_F(AuditorTest, RightAnswersAcquitWithTheirStamps) {
    Auditor auditor(numbers_, options());
    auditor.submit(make_case(5, right(5), 17));
    auditor.submit(make_case(6, right(6), 18));
    ASSERT_TRUE(worker_->wait_for(2));
    EXPECT_THAT(worker_->stamps(), ElementsAre(17, 18));
    EXPECT_EQ(worker_->verdict(), "");
    EXPECT_FALSE(numbers_->checked());
}

TEST_F(AuditorTest, OneWrongBitConvicts) {
    Auditor auditor(numbers_, options());
    auditor.submit(make_case(5, row_of({5, 5, std::nextafter(5.0F, 6.0F), 5})));
    EXPECT_THAT(worker_->wait_for_conviction(), HasSubstr("layer 3, expert 5: 1 of 4 values"));
    EXPECT_TRUE(numbers_->checked());
}

TEST_F(AuditorTest, NegativeZeroIsNotZero) {
    Auditor auditor(numbers_, options());
    auditor.submit(make_case(0, row_of({0, -0.0F, 0, 0})));
    EXPECT_THAT(worker_->wait_for_conviction(), HasSubstr("1 of 4 values"));
}

// Who computes with damaged weights has nobody to judge.
TEST_F(AuditorTest, DamagedWeightsOfItsOwnConvictNobody) {
    const auto damaged = std::make_shared<Numbers>(false);
    Auditor auditor(damaged, options());
    auditor.submit(make_signed(5, right(6)));
    auditor.submit(make_case(7, right(7), 1));
    ASSERT_TRUE(worker_->wait_for(1));
    EXPECT_TRUE(damaged->checked());
    EXPECT_EQ(worker_->verdict(), "");
    EXPECT_TRUE(kept().empty());
}

TEST_F(AuditorTest, WhatCannotBeComputedJudgesNobody) {
    Auditor auditor(numbers_, options());
    auditor.submit(make_signed(Numbers::kUnknown, right(5)));
    auditor.submit(make_case(7, right(7), 1));
    ASSERT_TRUE(worker_->wait_for(1));
    EXPECT_EQ(worker_->verdict(), "");
    EXPECT_TRUE(kept().empty());
}

TEST_F(AuditorTest, AWorkerThatIsGoneIsNotWaitedFor) {
    Auditor auditor(numbers_, options());
    AuditCase gone = make_case(5, right(6));
    gone.subject.reset();
    auditor.submit(std::move(gone));
    auditor.submit(make_case(5, right(5), 1));
    EXPECT_TRUE(worker_->wait_for(1));
}

// ---- evidence ------------------------------------------------------------------------------------------------------

TEST_F(AuditorTest, ASignedWrongAnswerIsEvidence) {
    Auditor auditor(numbers_, options());
    auditor.submit(make_signed(5, right(6)));
    EXPECT_THAT(worker_->wait_for_conviction(), AllOf(HasSubstr("4 of 4 values"), HasSubstr("in the drawer")));
    ASSERT_EQ(kept().size(), 1U);
    const Evidence evidence = kept().front();
    EXPECT_EQ(signer_of(evidence).value(), identity_.id());
    EXPECT_EQ(evidence.answer, right(6));
    EXPECT_EQ(evidence.right_answer, right(5));
    EXPECT_EQ(evidence.row, question(5).row);
    EXPECT_EQ(evidence.terms.expert, 5U);
    EXPECT_EQ(evidence.context.arithmetic, "portable/1");
}

TEST_F(AuditorTest, ASignedRightAnswerIsNone) {
    Auditor auditor(numbers_, options());
    auditor.submit(make_signed(5, right(5)));
    ASSERT_TRUE(worker_->wait_for(1));
    EXPECT_TRUE(kept().empty());
}

TEST_F(AuditorTest, AnUnsignedWrongAnswerConvictsWithoutEvidence) {
    Auditor auditor(numbers_, options());
    auditor.submit(make_case(5, right(6)));
    EXPECT_THAT(worker_->wait_for_conviction(), HasSubstr("did not sign it"));
    EXPECT_TRUE(kept().empty());
}

// Who signs something else than he answers means to lie.
TEST_F(AuditorTest, ASignatureOfAnotherAnswerConvicts) {
    for (bool answers_right : {true, false}) {
        const auto worker = std::make_shared<Worker>();
        Auditor auditor(numbers_, options());
        AuditCase open = make_signed(5, right(7));
        open.answer = right(answers_right ? 5 : 6);
        open.subject = worker;
        auditor.submit(std::move(open));
        EXPECT_THAT(worker->wait_for_conviction(),
                    HasSubstr(answers_right ? "what it signed is not what it answered" : "did not sign it"));
    }
    EXPECT_TRUE(kept().empty());
}

TEST_F(AuditorTest, ASignatureForAnotherBackboneIsNone) {
    Auditor auditor(numbers_, options());
    AuditCase open = make_signed(5, right(5));
    SignedAnswers proof = *open.proof;
    proof.context.backbone[0] ^= std::byte{1};
    open.proof = std::make_shared<const SignedAnswers>(std::move(proof));
    auditor.submit(std::move(open));
    EXPECT_THAT(worker_->wait_for_conviction(), HasSubstr("the signature is not one of these answers"));
}

TEST_F(AuditorTest, EvidenceThatCannotBeKeptConvictsAllTheSame) {
    AuditorOptions full = options();
    full.keep = [](const Evidence&) -> Result<std::string> { return fail(ErrorKind::io, "no space left"); };
    Auditor auditor(numbers_, std::move(full));
    auditor.submit(make_signed(5, right(6)));
    EXPECT_THAT(worker_->wait_for_conviction(), HasSubstr("could not be kept: no space left"));

    const auto other = std::make_shared<Worker>();
    AuditorOptions nowhere = options();
    nowhere.keep = nullptr;
    Auditor forgetful(numbers_, std::move(nowhere));
    AuditCase open = make_signed(5, right(6));
    open.subject = other;
    forgetful.submit(std::move(open));
    EXPECT_THAT(other->wait_for_conviction(), HasSubstr("the evidence is not kept"));
}

// ---- the queue -----------------------------------------------------------------------------------------------------

// What a worker signs last, and so what comes last of very much, is found as well as the rest.
TEST_F(AuditorTest, OfTooManyNoneIsDroppedForComingLast) {
    const auto liar = std::make_shared<Worker>();
    Auditor auditor(numbers_, options());
    auditor.submit(make_case(Numbers::kGate, right(Numbers::kGate)));
    numbers_->wait_until_reached();
    for (int i = 0; i < 64; ++i)
        auditor.submit(make_case(5, right(5)));
    for (int i = 0; i < 64; ++i) {
        AuditCase wrong = make_case(5, right(6));
        wrong.subject = liar;
        auditor.submit(std::move(wrong));
    }
    numbers_->open();
    // The chance that none of them is among the 64 of 128 that stay is below 1e-37.
    EXPECT_NE(liar->wait_for_conviction(), "");
    // And that all of them are is the same.
    EXPECT_TRUE(worker_->wait_for(2));
}

TEST_F(AuditorTest, UrgentCasesComeFirstAndAreNeverDropped) {
    Auditor auditor(numbers_, options());
    auditor.submit(make_case(Numbers::kGate, right(Numbers::kGate), 1));
    numbers_->wait_until_reached();
    for (int i = 0; i < 1000; ++i)
        auditor.submit(make_case(5, right(5), 2));
    AuditCase urgent = make_case(6, right(6), 3);
    urgent.urgent = true;
    auditor.submit(std::move(urgent));
    for (int i = 0; i < 1000; ++i)
        auditor.submit(make_case(5, right(5), 2));
    numbers_->open();
    ASSERT_TRUE(worker_->wait_for(1 + 1 + 64));
    const std::vector<std::uint64_t> stamps = worker_->stamps();
    EXPECT_EQ(stamps[0], 1U);
    EXPECT_EQ(stamps[1], 3U);
    EXPECT_EQ(stamps.size(), 66U);
}

// With hardly any budget the pause after an audit is longer than a test may take.
TEST_F(AuditorTest, UrgentCasesDoNotWaitForTheBudget) {
    AuditorOptions poor = options();
    poor.budget.compute = 1e-9;
    Auditor auditor(numbers_, std::move(poor));
    auditor.submit(make_case(5, right(5), 1));
    ASSERT_TRUE(worker_->wait_for(1));
    auditor.submit(make_case(5, right(5), 2));
    AuditCase urgent = make_case(5, right(6), 3);
    urgent.urgent = true;
    auditor.submit(std::move(urgent));
    EXPECT_NE(worker_->wait_for_conviction(), "");
    EXPECT_THAT(worker_->stamps(), Not(testing::Contains(2)));
}

// ---- before use ----------------------------------------------------------------------------------------------------

TEST_F(AuditorTest, StrictlyOnlyTheSameBitsAgree) {
    AuditorOptions strict = options();
    strict.strict_reference = std::make_shared<Numbers>();
    Auditor auditor(numbers_, std::move(strict));
    EXPECT_TRUE(auditor.strict());
    EXPECT_TRUE(auditor.agrees(question(5), right(5)));
    EXPECT_FALSE(auditor.agrees(question(5), right(6)));
    EXPECT_FALSE(auditor.agrees(question(0), row_of({0, -0.0F, 0, 0})));
    EXPECT_FALSE(auditor.agrees(question(5), ByteSpan(right(5)).first(12)));
    EXPECT_FALSE(auditor.agrees(question(Numbers::kUnknown), right(5)));
    EXPECT_FALSE(Auditor(numbers_, options()).strict());
}

TEST(DifferingValuesTest, CountsValuesOfEitherEncoding) {
    const ByteVector left = row_of({1, 2, 3, 4});
    const ByteVector other = row_of({1, 2, -3, 5});
    EXPECT_EQ(differing_values(RowEncoding::f32, left, left), 0U);
    EXPECT_EQ(differing_values(RowEncoding::f32, left, other), 2U);
    EXPECT_EQ(differing_values(RowEncoding::f32, ByteSpan(left).first(8), left), 2U);
    EXPECT_EQ(differing_values(RowEncoding::f32, {}, left), 4U);
}

// An exponent is no value, but says what those of its block are.
TEST(DifferingValuesTest, AnotherExponentIsThatOfItsWholeBlock) {
    constexpr std::size_t kColumns = 260;
    const ByteVector row(row_bytes(RowEncoding::i16x256, kColumns));
    const auto with = [&](std::initializer_list<std::size_t> places) {
        ByteVector changed = row;
        for (std::size_t place : places)
            changed[2 * place] = std::byte{1};
        return differing_values(RowEncoding::i16x256, changed, row);
    };
    EXPECT_EQ(with({}), 0U);
    EXPECT_EQ(with({1}), 1U);
    EXPECT_EQ(with({1, 256, 258, 261}), 4U);
    EXPECT_EQ(with({0}), 256U);
    EXPECT_EQ(with({257}), 4U);
    EXPECT_EQ(with({0, 5, 257, 260}), kColumns);
}

}  // namespace
}  // namespace kvasir
