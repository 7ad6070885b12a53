#include "backbone/evidence_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "backbone/evidence_fixture.h"
#include "backbone/model_reference.h"
#include "base/temp_directory.h"
#include "expert/layer_weights.h"

namespace kvasir {
namespace {

using testing::HasSubstr;

const std::filesystem::path kModel = std::filesystem::path(KVASIR_MODELS) / "kvasir-tales-q4_k_m.gguf";
constexpr std::uint32_t kLayer = 2;
constexpr std::uint32_t kExpert = 7;

template <class T>
T must(Result<T> result) {
    if (!result) throw std::runtime_error(result.error().message);
    return std::move(*result);
}

// The bundled model, published; signed answers to a question about one of its experts.
class EvidenceCheckTest : public testing::TestWithParam<Arithmetic> {
  protected:
    EvidenceCheckTest() {
        select_exact_kernels();
        must(publish_to(manifest_, model_, map_, {.threads = 1, .quiet = true}));
        auto manifest = std::make_shared<const Manifest>(must(load_manifest(manifest_)));
        reference_ = must(make_model_reference(model_, map_, manifest, GetParam()));
        evidence_.context = {manifest->model_id(), Digest{std::byte{3}}, wire_name(GetParam())};
        AnswerTerms& terms = evidence_.terms;
        const ExpertLayer& layer = *map_.find(kLayer);
        terms = {kLayer,       kExpert,          static_cast<std::uint32_t>(layer.hidden),
                 layer.recipe, RowEncoding::f32, RowEncoding::f32};
        if (GetParam() == Arithmetic::portable) {
            terms.question = RowEncoding::q8x256;
            terms.answer = RowEncoding::i16x256;
        }
        std::vector<float> row(terms.hidden);
        for (std::size_t i = 0; i < row.size(); ++i)
            row[i] = static_cast<float>(i % 17) - 8;
        evidence_.row.resize(row_bytes(terms.question, terms.hidden));
        encode_rows(terms.question, terms.hidden, row, evidence_.row);
        evidence_.answer = right_answer();
        // Of the last value.
        evidence_.answer[evidence_.answer.size() - 2] ^= std::byte{1};
        sign();
    }
    ByteVector right_answer() const {
        ByteVector answer(row_bytes(evidence_.terms.answer, evidence_.terms.hidden));
        if (Status computed = reference_->compute({evidence_.terms, evidence_.row}, answer); !computed) {
            throw std::runtime_error(computed.error().message);
        }
        return answer;
    }
    void sign() { test::sign_evidence(evidence_, worker_); }
    Error error(const std::filesystem::path& model = kModel) const {
        const Result<EvidenceVerdict> verdict = check_evidence(evidence_, model, manifest_);
        if (verdict) return {ErrorKind::internal, "it holds"};
        return verdict.error();
    }
    // That it cannot be checked is nothing against the worker, nor against whoever keeps it.
    void expect_unknown(const char* reason, const std::filesystem::path& model = kModel) const {
        const Error found = error(model);
        EXPECT_NE(found.kind, ErrorKind::mismatch);
        EXPECT_NE(found.kind, ErrorKind::internal);
        EXPECT_THAT(found.message, HasSubstr(reason));
    }
    std::filesystem::path path(const char* name) const { return directory_.path() / name; }
    // A copy of the model, one bit of an expert's weights flipped.
    std::filesystem::path damaged_model(std::uint32_t expert) const {
        std::filesystem::copy_file(kModel, path("damaged.gguf"));
        const ExpertTensor& tensor = map_.find(kLayer)->tensors.front();
        std::fstream file(path("damaged.gguf"), std::ios::in | std::ios::out | std::ios::binary);
        file.seekg(static_cast<std::streamoff>(tensor.slab_offset(expert) + 100));
        const int byte = file.get();
        file.seekp(static_cast<std::streamoff>(tensor.slab_offset(expert) + 100));
        file.put(static_cast<char>(byte ^ 1));
        return path("damaged.gguf");
    }

    const TempDirectory directory_ = std::move(*TempDirectory::create("kvasir-evidence-check-"));
    const std::filesystem::path manifest_ = path("manifest.json");
    const GgufModel model_ = must(GgufModel::open(kModel));
    const ExpertMap map_ = must(map_experts(model_));
    const Identity worker_ = Identity::generate().value();
    std::shared_ptr<AuditReference> reference_;
    Evidence evidence_;
};

TEST_P(EvidenceCheckTest, AWrongSignedAnswerHolds) {
    const Result<EvidenceVerdict> verdict = check_evidence(evidence_, kModel, manifest_);
    ASSERT_TRUE(verdict) << verdict.error().message;
    EXPECT_EQ(verdict->worker, worker_.id());
    EXPECT_EQ(verdict->wrong, 1U);
}

TEST_P(EvidenceCheckTest, ARightSignedAnswerDoesNot) {
    evidence_.answer = right_answer();
    sign();
    EXPECT_EQ(error().kind, ErrorKind::mismatch);
    EXPECT_THAT(error().message, HasSubstr("is right"));
}

// What the backbone says that it computed is not believed.
TEST_P(EvidenceCheckTest, TheBackbonesAnswerIsNotAsked) {
    evidence_.right_answer = evidence_.answer;
    EXPECT_TRUE(check_evidence(evidence_, kModel, manifest_));
    evidence_.answer = right_answer();
    evidence_.right_answer[0] ^= std::byte{1};
    sign();
    EXPECT_EQ(error().kind, ErrorKind::mismatch);
}

TEST_P(EvidenceCheckTest, AnUnsignedAnswerDoesNotHold) {
    evidence_.attestation.back() ^= std::byte{1};
    EXPECT_EQ(error().kind, ErrorKind::mismatch);
}

TEST_P(EvidenceCheckTest, AgainstAnotherModelItCannotBeChecked) {
    evidence_.context.model_id[0] ^= std::byte{1};
    sign();
    expect_unknown("the evidence is about model");
}

// Weights that are not the published ones prove nothing, whatever they give.
TEST_P(EvidenceCheckTest, WithDamagedWeightsItCannotBeChecked) {
    expect_unknown("are not the manifest's", damaged_model(kExpert));
    EXPECT_EQ(exit_code(error(path("damaged.gguf")).kind), 3);
}

TEST_P(EvidenceCheckTest, DamageElsewhereDoesNotMatter) {
    EXPECT_TRUE(check_evidence(evidence_, damaged_model(kExpert + 1), manifest_));
}

TEST_P(EvidenceCheckTest, InAnUnknownArithmeticItCannotBeChecked) {
    evidence_.context.arithmetic = "portable/2";
    sign();
    expect_unknown("'portable/2'");
}

// Whoever has a key signs what he likes: it must not be computed with before it is known to fit.
TEST_P(EvidenceCheckTest, QuestionsThatTheModelHasNoAnswerToCannotBeChecked) {
    const Evidence good = evidence_;
    for (const auto& [layer, expert] :
         {std::pair(99U, kExpert), std::pair(kLayer, 32U), std::pair(kLayer, UINT32_MAX)}) {
        evidence_ = good;
        evidence_.terms.layer = layer;
        evidence_.terms.expert = expert;
        sign();
        expect_unknown("");
    }
    const auto resized = [&](std::uint32_t hidden, RowEncoding question, RowEncoding answer) {
        evidence_ = good;
        evidence_.terms.hidden = hidden;
        evidence_.terms.question = question;
        evidence_.terms.answer = answer;
        evidence_.row.assign(row_bytes(question, hidden), std::byte{1});
        evidence_.answer.assign(row_bytes(answer, hidden), std::byte{1});
        sign();
        expect_unknown("are not what layer 2 takes");
    };
    resized(good.terms.hidden * 2, good.terms.question, good.terms.answer);
    resized(256, RowEncoding::i16x256, good.terms.answer);
    for (RowEncoding question : {RowEncoding::f32, RowEncoding::q8x256, RowEncoding::q8x32, RowEncoding::i16x256}) {
        for (RowEncoding answer : {RowEncoding::f32, RowEncoding::q8x256, RowEncoding::q8x32, RowEncoding::i16x256}) {
            if (question == good.terms.question && answer == good.terms.answer) continue;
            resized(good.terms.hidden, question, answer);
        }
    }
    evidence_ = good;
    evidence_.terms.recipe.gate_bias = true;
    evidence_.terms.recipe.up_bias = true;
    sign();
    expect_unknown("");
}

// Any bytes are a row of the right length, and any row has an answer.
TEST_P(EvidenceCheckTest, AnyRowIsComputed) {
    for (std::byte fill : {std::byte{0}, std::byte{0x7F}, std::byte{0x80}, std::byte{0xFF}}) {
        evidence_.row.assign(evidence_.row.size(), fill);
        evidence_.answer = right_answer();
        sign();
        EXPECT_EQ(error().kind, ErrorKind::mismatch);
    }
}

TEST_P(EvidenceCheckTest, WithoutAModelOrManifestItCannotBeChecked) {
    expect_unknown("nowhere.gguf", path("nowhere.gguf"));
    std::filesystem::remove(manifest_);
    expect_unknown("manifest.json");
}

INSTANTIATE_TEST_SUITE_P(Arithmetics, EvidenceCheckTest, testing::Values(Arithmetic::portable, Arithmetic::ggml_cpu),
                         [](const auto& tested) { return tested.param == Arithmetic::portable ? "portable" : "ggml"; });

}  // namespace
}  // namespace kvasir
