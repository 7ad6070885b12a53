// Every architecture preset of `kvasir synth` that has experts, verified against stock llama.cpp. The backend can be
// registered once per process and a stock model must be loaded before it: every test here needs a process of its own,
// which ctest (gtest_discover_tests) gives it. Run by hand, pick one with --gtest_filter.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <tuple>

#include "base/temp_directory.h"
#include "synth/synth.h"
#include "verify/local_swarm.h"
#include "verify/verify.h"

namespace kvasir {
namespace {

std::vector<std::string> tiny_presets() {
    std::vector<std::string> names = preset_names();
    std::erase_if(names, [](const std::string& name) { return !name.starts_with("tiny-") || name == "tiny-dense"; });
    return names;
}

using Parameters = std::tuple<std::string, Arithmetic>;

std::string test_name(const testing::TestParamInfo<Parameters>& info) {
    std::string name = std::get<0>(info.param) + "_" + std::string(short_name(std::get<1>(info.param)));
    std::ranges::replace_if(
        name, [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
    return name;
}

class VerifyPreset : public testing::TestWithParam<Parameters> {
  protected:
    void SetUp() override {
        Result<TempDirectory> directory = TempDirectory::create("kvasir-verify-test-");
        ASSERT_TRUE(directory) << directory.error().message;
        directory_.emplace(std::move(*directory));
        model_ = directory_->path() / "model.gguf";
        Result<SynthSpec> spec = preset(std::get<0>(GetParam()));
        ASSERT_TRUE(spec) << spec.error().message;
        Result<SynthReport> made = synthesize(*spec, model_, {.threads = 2});
        ASSERT_TRUE(made) << made.error().message;
    }

    std::optional<TempDirectory> directory_;
    std::filesystem::path model_;
};

// In ggml-cpu stock llama.cpp, the backbone and the swarm are identical, in portable backbone and swarm.
TEST_P(VerifyPreset, WhatIsPromisedToBeIdenticalIs) {
    const Arithmetic arithmetic = std::get<1>(GetParam());
    Result<std::unique_ptr<LocalSwarm>> swarm = LocalSwarm::start(model_);
    ASSERT_TRUE(swarm) << swarm.error().message;
    Result<BackendConfig> connected = (*swarm)->connect(arithmetic);
    ASSERT_TRUE(connected) << connected.error().message;
    VerifyOptions options;
    options.model = model_;
    options.tokens = 96;
    options.single_tokens = 16;
    options.batch = 40;
    options.threads = 1;
    options.quiet = true;
    options.arithmetic = arithmetic;
    options.exact_tokens = 0;
    options.dispatcher = connected->dispatcher;
    options.manifest = connected->manifest;
    Result<VerifyReport> report = verify(options);
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_TRUE(report->identical()) << table(*report);

    ASSERT_EQ(report->passes.size(), 2U);
    EXPECT_EQ(report->passes[0].local_to_stock.positions, 96U);
    EXPECT_EQ(report->passes[1].local_to_stock.positions, 16U);
    std::uint64_t rows = 0;
    for (const VerifyPass& pass : report->passes) {
        for (const Comparison& comparison : {pass.local_to_stock, *pass.swarm_to_stock, *pass.swarm_to_local}) {
            EXPECT_GT(comparison.rows, 0U);
            EXPECT_TRUE(comparison.layers_unseen.empty()) << table(*report);
            EXPECT_EQ(comparison.positions_not_finite, 0U);
        }
        rows += pass.swarm_to_stock->rows;
    }
    EXPECT_EQ(report->pairs, rows);
    EXPECT_EQ(report->swarm->pairs_remote + report->swarm->pairs_local, report->pairs);
    EXPECT_GT(report->swarm->pairs_remote, 0U);
    for (const WorkerStatus& worker : report->swarm->workers) {
        EXPECT_GT(worker.pairs, 0U) << worker.endpoint.address.text();
    }
}

INSTANTIATE_TEST_SUITE_P(Presets, VerifyPreset,
                         testing::Combine(testing::ValuesIn(tiny_presets()),
                                          testing::Values(Arithmetic::portable, Arithmetic::ggml_cpu)),
                         test_name);

}  // namespace
}  // namespace kvasir
