#include "verify/session.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "verify/comparison.h"
#include "verify/text.h"

namespace kvasir {
namespace {

const std::filesystem::path kTales = std::filesystem::path(KVASIR_MODELS) / "kvasir-tales-q4_k_m.gguf";
constexpr std::uint32_t kLayers = 6;
constexpr std::uint32_t kTopK = 4;
constexpr std::uint32_t kHidden = 256;

class StockSession : public testing::Test {
  protected:
    void SetUp() override {
        prepare_llama();
        Result<std::shared_ptr<const LlamaModel>> model = LlamaModel::load(kTales);
        ASSERT_TRUE(model) << model.error().message;
        model_ = *model;
        Result<VerifyText> text = verify_text(*model_, kTales, {}, 24);
        ASSERT_TRUE(text) << text.error().message;
        text_ = *text;
    }
    std::unique_ptr<LlamaSession> open(ExpertRecord* record) {
        LlamaOptions options;
        options.threads = 2;
        options.context = 64;
        options.batch = 24;
        options.record = record;
        Result<std::unique_ptr<LlamaSession>> session = LlamaSession::create(model_, options);
        EXPECT_TRUE(session) << session.error().message;
        return session ? std::move(*session) : nullptr;
    }

    std::shared_ptr<const LlamaModel> model_;
    VerifyText text_;
};

TEST_F(StockSession, RecordsEveryExpertRowOfEveryLayer) {
    ExpertRecord record;
    const std::unique_ptr<LlamaSession> session = open(&record);
    ASSERT_TRUE(session);
    Status done = session->decode(text_.tokens);
    ASSERT_TRUE(done) << done.error().message;
    ASSERT_EQ(record.layers().size(), kLayers);
    for (const auto& [layer, rows] : record.layers()) {
        EXPECT_LT(layer, kLayers);
        EXPECT_EQ(rows.hidden, kHidden);
        EXPECT_EQ(rows.rows(), text_.tokens.size() * kTopK);
    }
    EXPECT_EQ(session->logits().size(), text_.tokens.size() * model_->vocabulary());
}

TEST_F(StockSession, RecordingChangesNoLogitAndClearingForgetsAll) {
    ExpertRecord record;
    const std::unique_ptr<LlamaSession> plain = open(nullptr);
    const std::unique_ptr<LlamaSession> recording = open(&record);
    ASSERT_TRUE(plain && recording);
    for (int round = 0; round < 2; ++round) {
        plain->clear();
        ASSERT_TRUE(plain->decode(text_.tokens));
        if (round == 0) {
            ASSERT_TRUE(recording->decode(text_.tokens));
        }
        Comparison result;
        compare_logits(plain->logits(), recording->logits(), model_->vocabulary(), 0, result);
        EXPECT_EQ(result.positions, text_.tokens.size());
        EXPECT_TRUE(result.identical()) << *result.first_difference;
    }
}

TEST_F(StockSession, RefusesABatchThatIsTooLong) {
    const std::unique_ptr<LlamaSession> session = open(nullptr);
    ASSERT_TRUE(session);
    EXPECT_FALSE(session->decode(std::vector<Token>(25)));
    EXPECT_FALSE(session->decode({}));
}

TEST_F(StockSession, ShortTextIsRepeatedAndNamed) {
    const std::filesystem::path text = std::filesystem::path(KVASIR_MODELS) / "tales-heldout.txt";
    Result<VerifyText> once = verify_text(*model_, "elsewhere/model.gguf", text, 10'000);
    ASSERT_TRUE(once) << once.error().message;
    EXPECT_EQ(once->tokens.size(), 10'000U);
    EXPECT_NE(once->source.find("repeated"), std::string::npos);
    Result<VerifyText> random = verify_text(*model_, "elsewhere/model.gguf", {}, 1000);
    ASSERT_TRUE(random);
    for (const Token token : random->tokens)
        EXPECT_LT(static_cast<std::uint32_t>(token), model_->vocabulary());
    EXPECT_FALSE(verify_text(*model_, "elsewhere/model.gguf", "no/such/file", 10));
}

TEST(LlamaModel, LoadingWhatIsNoModelSaysWhy) {
    prepare_llama();
    const std::filesystem::path text = std::filesystem::path(KVASIR_MODELS) / "tales-heldout.txt";
    Result<std::shared_ptr<const LlamaModel>> model = LlamaModel::load(text);
    ASSERT_FALSE(model);
    EXPECT_NE(model.error().message.find("tales-heldout.txt"), std::string::npos);
    EXPECT_EQ(model.error().message.find("no reason given"), std::string::npos) << model.error().message;
}

}  // namespace
}  // namespace kvasir
