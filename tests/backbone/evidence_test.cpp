#include "backbone/evidence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <nlohmann/json.hpp>

#include "backbone/evidence_fixture.h"
#include "base/files.h"
#include "base/hex.h"
#include "base/temp_directory.h"

namespace kvasir {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;
using Json = nlohmann::json;

ByteVector some_bytes(std::size_t size, int first) {
    ByteVector bytes(size);
    for (std::size_t i = 0; i < size; ++i)
        bytes[i] = static_cast<std::byte>(first + static_cast<int>(i));
    return bytes;
}

class EvidenceTest : public testing::Test {
  protected:
    EvidenceTest() {
        evidence_.context = {sha256(some_bytes(1, 1)), sha256(some_bytes(1, 2)), "portable/1"};
        evidence_.terms = {3, 17, 64, {}, RowEncoding::q8x32, RowEncoding::i16x256};
        evidence_.terms.recipe.activation = Activation::swiglu_oai;
        evidence_.terms.recipe.alpha = 1.702F;
        evidence_.terms.recipe.limit = 7;
        evidence_.row = some_bytes(72, 0);
        evidence_.answer = some_bytes(130, 100);
        evidence_.right_answer = some_bytes(130, 101);
        test::sign_evidence(evidence_, worker_);
    }
    Json json() const { return Json::parse(to_json(evidence_)); }
    static std::string refusal_of(const std::string& text, ErrorKind kind = ErrorKind::invalid) {
        const Result<Evidence> evidence = evidence_from_json(text);
        if (evidence) return "";
        EXPECT_EQ(evidence.error().kind, kind) << evidence.error().message;
        return evidence.error().message;
    }
    std::string refusal_with(const char* key, const Json& value, ErrorKind kind = ErrorKind::invalid) const {
        Json changed = json();
        changed[key] = value;
        return refusal_of(changed.dump(), kind);
    }
    std::string complaint_with(const std::function<void(Evidence&)>& change) const {
        Evidence changed = evidence_;
        change(changed);
        const Result<NodeId> signer = signer_of(changed);
        if (signer) return "";
        EXPECT_EQ(signer.error().kind, ErrorKind::mismatch);
        return signer.error().message;
    }

    const Identity worker_ = Identity::generate().value();
    const TempDirectory directory_ = std::move(*TempDirectory::create("kvasir-evidence-test-"));
    Evidence evidence_;
};

void expect_same(const Evidence& left, const Evidence& right) {
    EXPECT_EQ(left.context.model_id, right.context.model_id);
    EXPECT_EQ(left.context.backbone, right.context.backbone);
    EXPECT_EQ(left.context.arithmetic, right.context.arithmetic);
    EXPECT_EQ(left.terms.layer, right.terms.layer);
    EXPECT_EQ(left.terms.expert, right.terms.expert);
    EXPECT_EQ(left.terms.hidden, right.terms.hidden);
    EXPECT_EQ(left.terms.recipe, right.terms.recipe);
    EXPECT_EQ(left.terms.question, right.terms.question);
    EXPECT_EQ(left.terms.answer, right.terms.answer);
    EXPECT_EQ(left.row, right.row);
    EXPECT_EQ(left.answer, right.answer);
    EXPECT_EQ(left.right_answer, right.right_answer);
    EXPECT_EQ(left.attestation, right.attestation);
}

TEST_F(EvidenceTest, ComesBackFromJson) {
    const Result<Evidence> again = evidence_from_json(to_json(evidence_));
    ASSERT_TRUE(again) << again.error().message;
    expect_same(*again, evidence_);
}

TEST_F(EvidenceTest, NamesItsWorkerForPeople) {
    EXPECT_EQ(json().at("worker"), to_hex(worker_.id()));
    evidence_.attestation.clear();
    EXPECT_FALSE(json().contains("worker"));
}

TEST_F(EvidenceTest, EveryFieldIsAskedForByName) {
    const Json whole = json();
    for (const auto& [key, value] : whole.items()) {
        if (key == "worker") continue;  // nothing is concluded from it
        Json without = whole;
        without.erase(key);
        EXPECT_THAT(refusal_of(without.dump()), HasSubstr("\"" + key + "\"")) << key;
        for (const Json& wrong : {Json(), Json(true), Json(-1), Json(1.5), Json::array(), Json::object()})
            EXPECT_THAT(refusal_with(key.c_str(), wrong), HasSubstr("\"" + key + "\"")) << wrong;
    }
}

TEST_F(EvidenceTest, ValuesOutOfBoundsAreRefused) {
    for (const char* number : {"layer", "expert", "hidden"})
        EXPECT_THAT(refusal_with(number, std::uint64_t{1} << 32), HasSubstr(number));
    for (const char* encoding : {"row_encoding", "answer_encoding"})
        EXPECT_THAT(refusal_with(encoding, 4), HasSubstr(encoding));
    for (const char* digest : {"model_id", "backbone"})
        EXPECT_THAT(refusal_with(digest, "abcd"), HasSubstr(digest));
    for (const char* bytes : {"row", "answer", "right_answer", "attestation", "recipe"})
        EXPECT_THAT(refusal_with(bytes, "0g"), HasSubstr(bytes));
    EXPECT_THAT(refusal_with("arithmetic", std::string(257, 'a')), HasSubstr("longer than 256"));
    for (const char* name : {"portable\n", "\x1b[31mportable", "\x7F"})
        EXPECT_THAT(refusal_with("arithmetic", name), HasSubstr("control characters"));
    EXPECT_THAT(refusal_with("recipe", "00"), HasSubstr("evidence"));
    EXPECT_THAT(refusal_with("recipe", json().at("recipe").get<std::string>() + "00"), HasSubstr("17 bytes"));
    EXPECT_THAT(refusal_with("recipe", std::string(32, 'f'), ErrorKind::unsupported), HasSubstr("evidence"));
    EXPECT_THAT(refusal_with("kvasir_evidence", 2, ErrorKind::unsupported), HasSubstr("version"));
}

// Nothing is ever made as large as a field claims.
TEST_F(EvidenceTest, RowsOfOtherLengthsAreRefused) {
    for (std::uint32_t hidden : {0U, 1U, 32U, 63U, 65U, 96U, UINT32_MAX})
        EXPECT_THAT(refusal_with("hidden", hidden), HasSubstr("rows of 72 and 130 bytes")) << hidden;
    EXPECT_NE(refusal_with("row_encoding", 0), "");
    EXPECT_NE(refusal_with("row_encoding", 1), "");
    EXPECT_NE(refusal_with("answer_encoding", 0), "");
    EXPECT_NE(refusal_with("row", ""), "");
    EXPECT_NE(refusal_with("answer", "00"), "");
}

TEST_F(EvidenceTest, WhatIsNoJsonObjectIsRefused) {
    for (const char* text : {"", "[]", "3", "\"x\"", "null", "{", "{\"a\":\xFF}", "{} x"})
        EXPECT_THAT(refusal_of(text), HasSubstr("not a JSON object")) << text;
    EXPECT_THAT(refusal_of("{}"), HasSubstr("kvasir_evidence"));
    EXPECT_NE(refusal_of(std::string(100'000, '[')), "");
}

TEST_F(EvidenceTest, IsKeptInAFileOfItsOwn) {
    const std::filesystem::path deep = directory_.path() / "not" / "there";
    const Result<std::filesystem::path> path = save(evidence_, deep);
    ASSERT_TRUE(path) << path.error().message;
    EXPECT_EQ(path->parent_path(), deep);
    EXPECT_THAT(path->filename().string(), AllOf(HasSubstr("Z-layer-3-expert-17-"), testing::EndsWith(".json")));
    const Result<Evidence> again = load_evidence(*path);
    ASSERT_TRUE(again) << again.error().message;
    expect_same(*again, evidence_);

    Evidence other = evidence_;
    test::sign_evidence(other, Identity::generate().value());
    EXPECT_NE(save(other, deep).value(), *path);
}

TEST_F(EvidenceTest, TroubleWithFilesNamesThem) {
    const std::filesystem::path file = directory_.path() / "file";
    ASSERT_TRUE(write_text_file(file, "{}"));
    const Result<std::filesystem::path> saved = save(evidence_, file);
    ASSERT_FALSE(saved);
    EXPECT_EQ(saved.error().kind, ErrorKind::io);
    EXPECT_THAT(saved.error().message, HasSubstr(file.string()));
    const Result<Evidence> empty = load_evidence(file);
    ASSERT_FALSE(empty);
    EXPECT_THAT(empty.error().message, StartsWith(file.string()));
    EXPECT_FALSE(load_evidence(directory_.path() / "nowhere"));
}

TEST_F(EvidenceTest, IsKeptInTheUsersStateUnlessToldOtherwise) {
    ::setenv("KVASIR_HOME", directory_.path().c_str(), 1);
    EXPECT_EQ(default_evidence_directory(), directory_.path() / "evidence");
    ::unsetenv("KVASIR_HOME");
}

// ---- who signed it -------------------------------------------------------------------------------------------------

TEST_F(EvidenceTest, ItsSignerIsTheKeysNode) {
    EXPECT_EQ(signer_of(evidence_).value(), worker_.id());
}

TEST_F(EvidenceTest, OfAnotherAnswerOrQuestionIsNotSigned) {
    const std::vector<std::function<void(Evidence&)>> changes = {
        [](Evidence& evidence) { evidence.row[5] ^= std::byte{1}; },
        [](Evidence& evidence) { evidence.row.push_back({}); },
        [](Evidence& evidence) { evidence.answer[5] ^= std::byte{1}; },
        [](Evidence& evidence) { evidence.answer.pop_back(); },
        [](Evidence& evidence) { ++evidence.terms.layer; },
        [](Evidence& evidence) { ++evidence.terms.expert; },
        [](Evidence& evidence) { evidence.terms.hidden += 32; },
        [](Evidence& evidence) { evidence.terms.recipe.limit = 8; },
        [](Evidence& evidence) { evidence.terms.question = RowEncoding::q8x256; },
        [](Evidence& evidence) { evidence.terms.answer = RowEncoding::f32; },
    };
    for (const auto& change : changes)
        EXPECT_THAT(complaint_with(change), HasSubstr("not among those that were signed"));
}

TEST_F(EvidenceTest, ForAnotherModelBackboneOrArithmeticIsNotSigned) {
    const std::vector<std::function<void(Evidence&)>> changes = {
        [](Evidence& evidence) { evidence.context.model_id[0] ^= std::byte{1}; },
        [](Evidence& evidence) { evidence.context.backbone[0] ^= std::byte{1}; },
        [](Evidence& evidence) { evidence.context.arithmetic = "portable/2"; },
    };
    for (const auto& change : changes)
        EXPECT_THAT(complaint_with(change), HasSubstr("the signature is not one of these answers"));
}

// No bit of the attestation can be changed, its key and signature included.
TEST_F(EvidenceTest, ADamagedAttestationProvesNothing) {
    for (std::size_t bit = 0; bit < evidence_.attestation.size() * 8; ++bit) {
        EXPECT_NE(
            complaint_with([bit](Evidence& evidence) { evidence.attestation[bit / 8] ^= std::byte{1} << bit % 8; }), "")
            << bit;
    }
    for (std::size_t size = 0; size < evidence_.attestation.size(); ++size)
        EXPECT_NE(complaint_with([size](Evidence& evidence) { evidence.attestation.resize(size); }), "") << size;
}

// A wrong answer put into somebody else's mouth.
TEST_F(EvidenceTest, AnothersKeyOverTheSameAnswersProvesNothing) {
    const PublicKey other = public_key(Identity::generate().value());
    EXPECT_NE(complaint_with([&](Evidence& evidence) { std::ranges::copy(other, evidence.attestation.begin()); }), "");
}

}  // namespace
}  // namespace kvasir
