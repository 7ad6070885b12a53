#include "wire/attestation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>

namespace kvasir {
namespace {

using testing::HasSubstr;

ByteSpan bytes(std::string_view text) {
    return std::as_bytes(std::span(text));
}

Digest digest(int number) {
    return sha256(bytes(std::to_string(number)));
}

PublicKey some_key() {
    PublicKey key{};
    key.fill(std::byte{7});
    return key;
}

std::vector<AttestedAnswers> some_answers() {
    return {{41, 0, {digest(1), digest(2)}}, {42, 8192, {digest(3)}}};
}

// As it travels.
ByteVector payload_of(const std::vector<AttestedAnswers>& answers) {
    ByteVector payload = encode_unsigned(some_key(), answers);
    payload.insert(payload.end(), sizeof(Signature), std::byte{9});
    return payload;
}

std::string refusal_of(const ByteVector& payload) {
    const Result<Attestation> decoded = decode_attestation(payload);
    if (decoded) return "";
    EXPECT_EQ(decoded.error().kind, ErrorKind::invalid);
    return decoded.error().message;
}

template <class T>
void overwrite(ByteVector& payload, std::size_t at, T value) {
    std::memcpy(payload.data() + at, &value, sizeof value);
}

TEST(AttestationTest, ComesBack) {
    const Result<Attestation> decoded = decode_attestation(payload_of(some_answers()));
    ASSERT_TRUE(decoded) << decoded.error().message;
    EXPECT_EQ(decoded->key, some_key());
    EXPECT_EQ(decoded->answers, some_answers());
    EXPECT_EQ(decoded->signature[0], std::byte{9});
    EXPECT_EQ(decoded->signature[63], std::byte{9});
}

// As docs/protocol.md has it: whoever checks evidence may have another program.
TEST(AttestationTest, IsLaidOutAsThePageSays) {
    ByteWriter expected;
    expected.append(some_key());
    for (std::uint32_t number : {1U, 0U})
        expected.write(number);
    expected.write(std::uint64_t{41});
    for (std::uint32_t number : {3U, 1U})
        expected.write(number);
    expected.append(digest(5));
    EXPECT_EQ(encode_unsigned(some_key(), {{41, 3, {digest(5)}}}), expected.buffer());
}

TEST(AttestationTest, AsManyAsMayBeFitIntoAControlFrame) {
    std::vector<AttestedAnswers> answers;
    for (std::uint64_t request = 1; request <= kMostAttested; ++request)
        answers.push_back({request, 0, {digest(0)}});
    const ByteVector payload = payload_of(answers);
    EXPECT_LE(payload.size(), kControlPayloadLimit);
    ASSERT_TRUE(decode_attestation(payload));
    answers.push_back({99999, 0, {digest(0)}});
    EXPECT_THAT(refusal_of(payload_of(answers)), HasSubstr("1 answers to request 99999"));
    EXPECT_NE(refusal_of(payload_of({{1, 0, std::vector<Digest>(kMostAttested + 1)}})), "");
}

TEST(AttestationTest, EveryOtherLengthIsRefused) {
    ByteVector payload = payload_of(some_answers());
    for (std::size_t size = 0; size < payload.size(); ++size)
        EXPECT_NE(refusal_of(ByteVector(payload.begin(), payload.begin() + static_cast<std::ptrdiff_t>(size))), "");
    payload.emplace_back();
    EXPECT_THAT(refusal_of(payload), HasSubstr("1 bytes too many"));
}

// Nothing is reserved for what a count only claims.
TEST(AttestationTest, LyingCountsAreRefused) {
    constexpr std::size_t kRequests = 32;
    constexpr std::size_t kReserved = 36;
    constexpr std::size_t kFirstRequest = 40;
    constexpr std::size_t kFirstDigests = 52;
    const auto with = [](std::size_t at, auto value) {
        ByteVector payload = payload_of(some_answers());
        overwrite(payload, at, value);
        return refusal_of(payload);
    };
    for (std::uint32_t requests : {0U, 1U, 3U, 1000U, UINT32_MAX})
        EXPECT_NE(with(kRequests, requests), "") << requests;
    EXPECT_THAT(with(kRequests, UINT32_MAX), HasSubstr("announces 4294967295 requests"));
    for (std::uint32_t digests : {0U, 1U, 3U, 1000U, UINT32_MAX})
        EXPECT_NE(with(kFirstDigests, digests), "") << digests;
    EXPECT_THAT(with(kFirstDigests, UINT32_MAX), HasSubstr("announces 4294967295 answers"));
    EXPECT_THAT(with(kReserved, 1U), HasSubstr("reserved"));
    EXPECT_THAT(with(kFirstRequest, std::uint64_t{0}), HasSubstr("request 0"));
}

// ---- what is signed ------------------------------------------------------------------------------------------------

AnswerTerms some_terms() {
    AnswerTerms terms{3, 17, 64, {}, RowEncoding::q8x32, RowEncoding::i16x256};
    terms.recipe.activation = Activation::silu;
    return terms;
}

TEST(AnswerDigestTest, IsMadeOfWhatTheHeaderSays) {
    const AnswerTerms terms = some_terms();
    ByteWriter expected;
    for (std::uint32_t number : {3U, 17U, 64U})
        expected.write(number);
    expected.write(std::uint8_t{2});
    expected.write(std::uint8_t{3});
    expected.write(std::uint16_t{0});
    write_recipe(expected, terms.recipe);
    expected.append(digest(1));
    expected.append(bytes("answer"));
    EXPECT_EQ(answer_digest(terms, digest(1), bytes("answer")), sha256(expected.buffer()));
}

// A signature of one answer is a signature of no other.
TEST(AnswerDigestTest, EveryPartOfItCounts) {
    std::vector<Digest> digests = {answer_digest(some_terms(), digest(1), bytes("answer"))};
    const auto other = [&](const std::function<void(AnswerTerms&)>& change) {
        AnswerTerms terms = some_terms();
        change(terms);
        digests.push_back(answer_digest(terms, digest(1), bytes("answer")));
    };
    other([](AnswerTerms& terms) { ++terms.layer; });
    other([](AnswerTerms& terms) { ++terms.expert; });
    other([](AnswerTerms& terms) { ++terms.hidden; });
    other([](AnswerTerms& terms) { std::swap(terms.layer, terms.expert); });
    other([](AnswerTerms& terms) { terms.question = RowEncoding::f32; });
    other([](AnswerTerms& terms) { terms.answer = RowEncoding::f32; });
    other([](AnswerTerms& terms) { terms.recipe.activation = Activation::gelu; });
    other([](AnswerTerms& terms) { terms.recipe.limit = 1; });
    other([](AnswerTerms& terms) { terms.recipe.down_bias = true; });
    digests.push_back(answer_digest(some_terms(), digest(2), bytes("answer")));
    digests.push_back(answer_digest(some_terms(), digest(1), bytes("answes")));
    digests.push_back(answer_digest(some_terms(), digest(1), bytes("answe")));
    EXPECT_EQ(std::set<Digest>(digests.begin(), digests.end()).size(), digests.size());
}

TEST(AttestedTextTest, NamesThePurposeTheModelTheBackboneAndTheArithmetic) {
    const AttestationContext context{digest(1), digest(2), "portable/1"};
    ByteWriter expected;
    expected.append(bytes("kvasir attestation 1"));
    expected.append(digest(1));
    expected.append(digest(2));
    expected.append(sha256(bytes("portable/1")));
    expected.append(sha256(bytes("payload")));
    EXPECT_EQ(attested_text(context, bytes("payload")), expected.buffer());
}

}  // namespace
}  // namespace kvasir
