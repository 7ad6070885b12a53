// Every preset loads in llama.cpp, decodes, and routes tokens to different experts.
#include "synth/synth.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/temp_directory.h"
#include "synth/llama_run.h"

namespace kvasir {
namespace {

using testing::HasSubstr;

std::vector<std::string> tiny_presets() {
    std::vector<std::string> names;
    for (const std::string& name : preset_names()) {
        if (name.starts_with("tiny-")) names.push_back(name);
    }
    return names;
}

std::filesystem::path made(const TempDirectory& directory, const SynthSpec& spec, const SynthOptions& options = {}) {
    const std::filesystem::path path = directory.path() / "model.gguf";
    Result<SynthReport> report = synthesize(spec, path, options);
    EXPECT_TRUE(report) << report.error().message;
    return report ? report->files.front() : path;
}

class TinyPreset : public testing::TestWithParam<std::string> {};

TEST_P(TinyPreset, RunsInLlama) {
    Result<TempDirectory> directory = TempDirectory::create("synth");
    ASSERT_TRUE(directory);
    Result<SynthSpec> spec = preset(GetParam());
    ASSERT_TRUE(spec);
    const std::filesystem::path path = made(*directory, *spec);
    EXPECT_LE(std::filesystem::file_size(path), 6U << 20);

    const std::vector<int> tokens = {65, 12, 200, 33, 300, 150, 7, 90};
    const std::string text = "The swarm answers: 42 \xC3\xA9t\xC3\xA9.";
    LlamaRun run = run_llama(path, tokens, text);
    ASSERT_TRUE(run.loaded) << run.log;
    ASSERT_TRUE(run.decoded) << run.log;
    EXPECT_EQ(run.round_trip, text);
    EXPECT_THAT(run.log, testing::Not(HasSubstr("unused tensor"))) << run.log;

    ASSERT_EQ(run.logits.size(), tokens.size());
    for (const std::vector<float>& row : run.logits) {
        ASSERT_EQ(row.size(), spec->vocab);
        ASSERT_TRUE(std::all_of(row.begin(), row.end(), [](float value) { return std::isfinite(value); }));
        const auto [least, most] = std::minmax_element(row.begin(), row.end());
        EXPECT_GT(*most - *least, 1.0F);
    }
    EXPECT_NE(run.logits[0], run.logits[1]);

    EXPECT_EQ(run.chosen.size(), spec->layers - spec->dense_layers);
    for (const auto& [layer, experts] : run.chosen) {
        EXPECT_GT(experts.size(), spec->used) << "layer " << layer << ": all tokens chose the same experts";
    }
}

INSTANTIATE_TEST_SUITE_P(All, TinyPreset, testing::ValuesIn(tiny_presets()), [](const auto& instance) {
    std::string name = instance.param;
    std::replace(name.begin(), name.end(), '-', '_');
    return name;
});

}  // namespace
}  // namespace kvasir
