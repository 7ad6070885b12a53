// Verification against dispatchers that misbehave. One process per test: see verify_presets_test.cpp.
#include "verify/verify.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "base/temp_directory.h"
#include "synth/synth.h"

namespace kvasir {
namespace {

// Computes everything locally and claims that workers did; spoils what it is told to.
class FakeSwarm : public Dispatcher {
  public:
    enum class Damage { none, one_bit, vacuous };
    explicit FakeSwarm(Damage damage) : damage_(damage) {}

    Status compute(const ExpertCall& call, LocalExperts& local) override {
        if (Status done = local.compute(call, call.pairs, call.out); !done) return done;
        ++stats_.calls;
        if (damage_ == Damage::vacuous) {
            stats_.pairs_local += call.pairs.size();
            return {};
        }
        stats_.pairs_remote += call.pairs.size();
        if (damage_ == Damage::one_bit && stats_.calls == 5) {
            float& value = call.out[call.out.size() / 2];
            value = std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) ^ 1U);
        }
        return {};
    }
    bool wait_for_workers(std::chrono::milliseconds) override { return true; }
    SwarmStats stats() const override { return stats_; }

  private:
    Damage damage_;
    SwarmStats stats_;
};

class Verify : public testing::Test {
  protected:
    void SetUp() override {
        Result<TempDirectory> directory = TempDirectory::create("kvasir-verify-test-");
        ASSERT_TRUE(directory) << directory.error().message;
        directory_.emplace(std::move(*directory));
        options_.model = directory_->path() / "model.gguf";
        options_.tokens = 64;
        options_.single_tokens = 8;
        options_.batch = 32;
        options_.threads = 2;
        options_.quiet = true;
        options_.arithmetic = Arithmetic::ggml_cpu;
    }
    void make(std::string_view name) {
        Result<SynthSpec> spec = preset(name);
        ASSERT_TRUE(spec) << spec.error().message;
        Result<SynthReport> made = synthesize(*spec, options_.model, {.threads = 2});
        ASSERT_TRUE(made) << made.error().message;
    }

    std::optional<TempDirectory> directory_;
    VerifyOptions options_;
};

TEST_F(Verify, HonestSwarmIsIdentical) {
    make("tiny-qwen3moe");
    options_.dispatcher = std::make_shared<FakeSwarm>(FakeSwarm::Damage::none);
    Result<VerifyReport> report = verify(options_);
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_TRUE(report->identical()) << table(*report);
    ASSERT_TRUE(report->swarm);
    EXPECT_EQ(report->swarm->pairs_remote, report->pairs);
    EXPECT_EQ(report->passes[0].swarm_to_stock->rows + report->passes[1].swarm_to_stock->rows, report->pairs);
    const auto json = nlohmann::json::parse(to_json(*report));
    EXPECT_EQ(json["identical"], true);
    EXPECT_EQ(json["passes"][0]["swarm_to_stock"]["positions"], 64);
}

// A unit in the last place of one of a few thousand expert outputs: no logit need show it.
TEST_F(Verify, OneWrongBitIsFound) {
    make("tiny-qwen3moe");
    options_.dispatcher = std::make_shared<FakeSwarm>(FakeSwarm::Damage::one_bit);
    Result<VerifyReport> report = verify(options_);
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_FALSE(report->identical());
    EXPECT_TRUE(report->passes[0].local_to_stock.identical());
    EXPECT_GE(report->passes[0].swarm_to_stock->rows_different, 1U);
    EXPECT_TRUE(report->passes[0].swarm_to_stock->first_difference);
    EXPECT_TRUE(report->passes[1].swarm_to_stock->identical()) << "damage was done in the first pass only";
    EXPECT_NE(table(*report).find("identical: NO"), std::string::npos);
    EXPECT_EQ(nlohmann::json::parse(to_json(*report))["identical"], false);
}

// A trained model and a text it was not trained on: what is left of chance is one machine's kernels.
TEST_F(Verify, PortableIsAsFaithfulAsStock) {
    options_.model = std::filesystem::path(KVASIR_MODELS) / "kvasir-tales-q4_k_m.gguf";
    options_.arithmetic = Arithmetic::portable;
    options_.tokens = 1024;
    options_.exact_tokens = 1024;
    options_.single_tokens = 0;
    options_.batch = 128;
    options_.threads = 1;
    Result<VerifyReport> report = verify(options_);
    ASSERT_TRUE(report) << report.error().message;
    const VerifyPass& pass = report->passes.front();
    ASSERT_TRUE(pass.local_to_exact && pass.stock_to_exact && pass.repacked_to_stock);
    EXPECT_EQ(pass.local_to_exact->positions, 1024U);
    EXPECT_GT(pass.stock_to_exact->kl_mean(), 0);
    EXPECT_LE(pass.local_to_exact->kl_mean(), 1.1 * pass.stock_to_exact->kl_mean()) << table(*report);
    EXPECT_NEAR(report->local.perplexity(), report->exact.perplexity(), 0.02) << table(*report);
    EXPECT_GE(pass.local_to_exact->top1_equal + 5, pass.stock_to_exact->top1_equal) << table(*report);
}

TEST_F(Verify, ResultWithoutRemotePairsIsRefused) {
    make("tiny-qwen3moe");
    options_.dispatcher = std::make_shared<FakeSwarm>(FakeSwarm::Damage::vacuous);
    Result<VerifyReport> report = verify(options_);
    ASSERT_FALSE(report);
    EXPECT_EQ(report.error().kind, ErrorKind::unavailable);
}

TEST_F(Verify, AnyFileOfASplitModelNamesIt) {
    Result<SynthSpec> spec = preset("tiny-qwen3moe");
    ASSERT_TRUE(spec);
    Result<SynthReport> made = synthesize(*spec, options_.model, {.threads = 2, .splits = 3});
    ASSERT_TRUE(made) << made.error().message;
    ASSERT_EQ(made->files.size(), 3U);
    options_.model = made->files[1];
    Result<VerifyReport> report = verify(options_);
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_TRUE(report->identical()) << table(*report);
}

TEST_F(Verify, DenseModelIsRefused) {
    make("tiny-dense");
    Result<VerifyReport> report = verify(options_);
    ASSERT_FALSE(report);
    EXPECT_EQ(report.error().kind, ErrorKind::unsupported);
}

TEST_F(Verify, MissingModelIsRefused) {
    Result<VerifyReport> report = verify(options_);
    ASSERT_FALSE(report);
    EXPECT_NE(report.error().message.find("model.gguf"), std::string::npos);
}

}  // namespace
}  // namespace kvasir
