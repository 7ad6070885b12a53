#include "worker/answer_signer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "net/signature.h"
#include "worker/worker_fixture.h"

namespace kvasir::worker_test {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;

std::vector<Digest> digests(std::size_t count, int salt = 0) {
    std::vector<Digest> made(count);
    for (std::size_t i = 0; i < count; ++i) {
        const std::array<std::uint64_t, 2> number{i, static_cast<std::uint64_t>(salt)};
        made[i] = sha256(std::as_bytes(std::span(number)));
    }
    return made;
}

class AnswerSignerTest : public testing::Test {
  protected:
    // What a payload says, once its signature was checked.
    Attestation read(const ByteVector& payload) const {
        EXPECT_LE(payload.size(), kControlPayloadLimit);
        const Result<Attestation> attestation = decode_attestation(payload);
        if (!attestation) {
            ADD_FAILURE() << attestation.error().message;
            return {};
        }
        EXPECT_EQ(sha256(attestation->key), identity_->id());
        const ByteSpan without = ByteSpan(payload).first(payload.size() - sizeof(Signature));
        EXPECT_TRUE(verify(attestation->key, attested_text(context_, without), attestation->signature));
        return *attestation;
    }
    // All answers of all payloads.
    std::vector<AttestedAnswers> read_all(const std::vector<ByteVector>& payloads) const {
        std::vector<AttestedAnswers> answers;
        for (const ByteVector& payload : payloads) {
            for (AttestedAnswers& each : read(payload).answers)
                answers.push_back(std::move(each));
        }
        return answers;
    }

    const std::shared_ptr<const Identity> identity_ = std::make_shared<const Identity>(Identity::generate().value());
    const AttestationContext context_{digests(1)[0], digests(2)[1], "portable/1"};
    AnswerSigner signer_{identity_, context_};
    const AnswerSigner::Clock::time_point start_{};
};

TEST_F(AnswerSignerTest, GathersAndSignsAtOnceWhatHasWaitedLongEnough) {
    EXPECT_TRUE(signer_.add(1, digests(8, 1), start_).empty());
    EXPECT_TRUE(signer_.add(2, digests(8, 2), start_ + milliseconds(249)).empty());
    const std::vector<ByteVector> due = signer_.add(3, digests(8, 3), start_ + milliseconds(250));
    ASSERT_EQ(due.size(), 1U);
    EXPECT_THAT(read(due[0]).answers,
                ElementsAre(AttestedAnswers{1, 0, digests(8, 1)}, AttestedAnswers{2, 0, digests(8, 2)},
                            AttestedAnswers{3, 0, digests(8, 3)}));
    // The wait begins anew with the next.
    EXPECT_TRUE(signer_.add(4, digests(8), start_ + milliseconds(260)).empty());
    EXPECT_TRUE(signer_.add(5, digests(8), start_ + milliseconds(500)).empty());
    EXPECT_FALSE(signer_.add(6, digests(8), start_ + milliseconds(510)).empty());
}

TEST_F(AnswerSignerTest, ManyAreSignedWithoutAWait) {
    EXPECT_TRUE(signer_.add(1, digests(1023), start_).empty());
    EXPECT_EQ(read_all(signer_.add(2, digests(1), start_)).size(), 2U);
    EXPECT_TRUE(signer_.add(3, digests(1023), start_).empty());
}

TEST_F(AnswerSignerTest, FlushSignsTheRestOnce) {
    EXPECT_TRUE(signer_.flush().empty());
    EXPECT_TRUE(signer_.add(7, digests(3), start_).empty());
    EXPECT_THAT(read_all(signer_.flush()), ElementsAre(AttestedAnswers{7, 0, digests(3)}));
    EXPECT_TRUE(signer_.flush().empty());
}

// A prompt's answers do not fit into one frame: in parts that say where they begin.
TEST_F(AnswerSignerTest, WhatFitsNoFrameIsCut) {
    const std::vector<Digest> all = digests(2 * kMostAttested + 5);
    const std::vector<ByteVector> payloads = signer_.add(9, all, start_);
    EXPECT_EQ(payloads.size(), 3U);
    std::vector<Digest> joined;
    for (const AttestedAnswers& part : read_all(payloads)) {
        EXPECT_EQ(part.request, 9U);
        EXPECT_EQ(part.first, joined.size());
        joined.insert(joined.end(), part.digests.begin(), part.digests.end());
    }
    EXPECT_EQ(joined, all);
}

TEST_F(AnswerSignerTest, ExactlyOneFramesWorthIsOneFrame) {
    EXPECT_EQ(signer_.add(9, digests(kMostAttested), start_).size(), 1U);
}

TEST_F(AnswerSignerTest, SeveralShareAFrameAsFarAsTheyFit) {
    EXPECT_TRUE(signer_.add(1, digests(1000, 1), start_).empty());
    const std::vector<ByteVector> payloads = signer_.add(2, digests(kMostAttested - 999, 2), start_);
    ASSERT_EQ(payloads.size(), 2U);
    EXPECT_THAT(read_all(payloads), ElementsAre(AttestedAnswers{1, 0, digests(1000, 1)},
                                                AttestedAnswers{2, 0, digests(kMostAttested - 999, 2)}));
}

// ---- what is digested ----------------------------------------------------------------------------------------------

class DigestAnswersTest : public WorkerTest {};

// Each pair's digest is of its own row, expert and answer, whatever the order of the pairs.
TEST_F(DigestAnswersTest, EveryPairsIsItsOwn) {
    for (const Question& question : {ask(0, 3, 4), portable(ask(0, 3, 4)), portable(ask(4, 3, 4))}) {
        const PieceStore store = open_store({model_});
        const JobPtr job = make_job(store, question, nullptr);
        const ByteVector rows = answer(question);
        const RowEncoding encoding = output_encoding(question.arithmetic);
        const std::vector<Digest> made = digest_answers(job->compute, encoding, rows);
        ASSERT_EQ(made.size(), question.pairs.size());
        const std::size_t row = row_bytes(question.encoding, kHidden);
        const std::size_t result = row_bytes(encoding, kHidden);
        for (std::size_t i = 0; i < made.size(); ++i) {
            const Pair& pair = question.pairs[i];
            const AnswerTerms terms{question.layer, pair.expert, kHidden, question.recipe, question.encoding, encoding};
            const ByteSpan asked = ByteSpan(question.rows).subspan(pair.row * row, row);
            EXPECT_EQ(made[i], answer_digest(terms, sha256(asked), ByteSpan(rows).subspan(i * result, result)));
        }
    }
}

}  // namespace
}  // namespace kvasir::worker_test
