// Every preset loads in llama.cpp, decodes, and has the recipe it promises; the bytes depend on nothing but the
// specification; what cannot be made is refused before anything is written.
#include "synth/synth.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "base/sha256.h"
#include "base/temp_directory.h"
#include "gguf/expert_map.h"
#include "synth/llama_run.h"

namespace kvasir {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

const std::vector<int> kTokens = {65, 12, 200, 33, 300, 150, 7, 90};
constexpr const char* kText = "The swarm answers: 42 \xC3\xA9t\xC3\xA9.";

class Synth : public testing::Test {
  protected:
    void SetUp() override {
        Result<TempDirectory> made = TempDirectory::create("synth");
        ASSERT_TRUE(made);
        directory_.emplace(std::move(*made));
    }
    std::filesystem::path path(const char* name = "model.gguf") const { return directory_->path() / name; }
    // Makes a model and gives its (first) file.
    std::filesystem::path make(const SynthSpec& spec, const SynthOptions& options = {},
                               const char* name = "model.gguf") const {
        Result<SynthReport> report = synthesize(spec, path(name), options);
        EXPECT_TRUE(report) << report.error().message;
        return report ? report->files.front() : path(name);
    }
    Digest digest(const std::filesystem::path& file) const {
        Result<std::string> bytes = read_text_file(file, std::uint64_t{1} << 30);
        EXPECT_TRUE(bytes) << bytes.error().message;
        return sha256(std::as_bytes(std::span(*bytes)));
    }
    std::size_t files() const {
        const std::filesystem::directory_iterator all(directory_->path());
        return static_cast<std::size_t>(std::distance(begin(all), end(all)));
    }

    std::optional<TempDirectory> directory_;
};

SynthSpec known_preset(std::string_view name) {
    Result<SynthSpec> spec = preset(name);
    EXPECT_TRUE(spec) << name;
    return spec.value_or(SynthSpec{});
}

void expect_sane(const LlamaRun& run, std::uint32_t vocabulary) {
    ASSERT_TRUE(run.loaded) << run.log;
    ASSERT_TRUE(run.decoded) << run.log;
    EXPECT_THAT(run.log, Not(HasSubstr("unused tensor")));
    EXPECT_EQ(run.round_trip, kText);
    ASSERT_EQ(run.logits.size(), kTokens.size());
    for (const std::vector<float>& row : run.logits) {
        ASSERT_EQ(row.size(), vocabulary);
        ASSERT_TRUE(std::all_of(row.begin(), row.end(), [](float value) { return std::isfinite(value); }));
        const auto [least, most] = std::minmax_element(row.begin(), row.end());
        EXPECT_GT(*most - *least, 1.0F);
        EXPECT_LT(std::max(std::abs(*least), std::abs(*most)), 1000.0F);
    }
    EXPECT_NE(run.logits[0], run.logits[1]);
    for (const auto& [layer, experts] : run.chosen) {
        EXPECT_GE(experts.size(), 4U) << "layer " << layer << ": nearly all tokens choose the same experts";
    }
}

std::vector<std::string> tiny_presets() {
    std::vector<std::string> names;
    for (const std::string& name : preset_names()) {
        if (name.starts_with("tiny-")) names.push_back(name);
    }
    return names;
}

class TinyPreset : public Synth, public testing::WithParamInterface<std::string> {};

TEST_P(TinyPreset, RunsInLlama) {
    const SynthSpec spec = known_preset(GetParam());
    EXPECT_FALSE(preset_description(GetParam()).empty());
    const std::filesystem::path file = make(spec);
    EXPECT_LE(std::filesystem::file_size(file), 5U << 20);

    const LlamaRun run = run_llama(file, kTokens, kText);
    expect_sane(run, spec.vocab);

    // The layers that route are those which the header shows, MTP blocks aside.
    Result<GgufModel> model = GgufModel::open(file);
    ASSERT_TRUE(model) << model.error().message;
    Result<ExpertMap> map = map_experts(*model);
    ASSERT_TRUE(map) << map.error().message;
    EXPECT_EQ(run.chosen.size() + spec.mtp_layers, map->layers.size());
    for (const auto& [layer, experts] : run.chosen)
        EXPECT_NE(map->find(static_cast<std::uint32_t>(layer)), nullptr);
}

INSTANTIATE_TEST_SUITE_P(All, TinyPreset, testing::ValuesIn(tiny_presets()), [](const auto& instance) {
    std::string name = instance.param;
    std::replace(name.begin(), name.end(), '-', '_');
    return name;
});

// What llama.cpp's graph shows of a preset's recipe, and what its header must tell.
struct RecipeCase {
    const char* preset;
    const char* node;
    Activation activation;
    bool gated = true;
    bool fused = false;
    bool biases = false;
    bool scales = false;
};

class PresetRecipe : public Synth, public testing::WithParamInterface<RecipeCase> {};

TEST_P(PresetRecipe, IsWhatLlamaComputes) {
    const RecipeCase& expected = GetParam();
    const std::filesystem::path file = make(known_preset(expected.preset));
    const LlamaRun run = run_llama(file, kTokens, kText);
    ASSERT_TRUE(run.decoded) << run.log;
    Result<GgufModel> model = GgufModel::open(file);
    ASSERT_TRUE(model) << model.error().message;
    Result<ExpertMap> map = map_experts(*model);
    ASSERT_TRUE(map) << map.error().message;
    for (const ExpertLayer& layer : map->layers) {
        EXPECT_EQ(layer.recipe.activation, expected.activation);
        EXPECT_EQ(layer.recipe.gated, expected.gated);
        EXPECT_EQ(layer.recipe.fused_gate_up, expected.fused);
        EXPECT_EQ(layer.recipe.down_bias, expected.biases);
        EXPECT_EQ(layer.recipe.down_scale, expected.scales);
    }
    for (const auto& [layer, experts] : run.chosen) {
        const std::set<std::string>& nodes = run.operations.at(layer);
        EXPECT_THAT(nodes, Contains(expected.node));
        EXPECT_EQ(nodes.contains("ffn_moe_gate_up"), expected.fused);
        EXPECT_EQ(nodes.contains("ffn_moe_down_biased"), expected.biases);
        EXPECT_EQ(nodes.contains("ffn_moe_down_scaled"), expected.scales);
    }
}

INSTANTIATE_TEST_SUITE_P(
    All, PresetRecipe,
    testing::Values(RecipeCase{"tiny-qwen3moe", "ffn_moe_swiglu", Activation::silu},
                    RecipeCase{"tiny-qwen3moe-scales", "ffn_moe_swiglu", Activation::silu, true, false, false, true},
                    RecipeCase{"tiny-gpt-oss", "ffn_moe_swiglu_oai", Activation::swiglu_oai, true, false, true},
                    RecipeCase{"tiny-grok", "ffn_moe_geglu", Activation::gelu},
                    RecipeCase{"tiny-smallthinker", "ffn_moe_reglu", Activation::relu},
                    RecipeCase{"tiny-maple", "ffn_moe_swiglu_limited", Activation::swiglu_clamp},
                    RecipeCase{"tiny-step35", "ffn_moe_silu_clamped", Activation::swiglu_limited},
                    RecipeCase{"tiny-deepseek2", "ffn_moe_group_topk", Activation::silu},
                    RecipeCase{"tiny-deepseek2-fused", "ffn_moe_swiglu", Activation::silu, true, true},
                    RecipeCase{"tiny-qwen35moe-fused", "ffn_moe_swiglu", Activation::silu, true, true},
                    RecipeCase{"tiny-nemotron-h-moe", "ffn_moe_relu_sqr", Activation::relu_squared, false}),
    [](const auto& instance) {
        std::string name = instance.param.preset;
        std::replace(name.begin(), name.end(), '-', '_');
        return name;
    });

// Big enough for the pool of quantised blocks, small enough for a test.
SynthSpec pooled_spec() {
    SynthSpec spec;
    spec.architecture = "qwen3moe";
    spec.experts = 16;
    spec.hidden = 512;
    spec.ff = 512;
    spec.layers = 1;
    spec.type = "Q4_K";
    spec.down_type = "Q6_K";
    return spec;
}

TEST_F(Synth, SameBytesOnAnyNumberOfThreads) {
    for (const SynthSpec& spec : {known_preset("tiny-qwen35moe-mtp"), pooled_spec()}) {
        const Digest one = digest(make(spec, {.threads = 1}));
        EXPECT_EQ(one, digest(make(spec, {.threads = 3})));
        SynthSpec other = spec;
        other.seed = 2;
        EXPECT_NE(one, digest(make(other, {.threads = 1})));
    }
}

TEST_F(Synth, PooledExpertsDifferAndRun) {
    const std::filesystem::path file = make(pooled_spec());
    expect_sane(run_llama(file, kTokens, kText), 512);
    Result<GgufModel> model = GgufModel::open(file);
    ASSERT_TRUE(model) << model.error().message;
    Result<ExpertMap> map = map_experts(*model);
    ASSERT_TRUE(map) << map.error().message;
    Result<MappedFile> bytes = MappedFile::open(file);
    ASSERT_TRUE(bytes);
    std::set<Digest> seen;
    for (const ExpertTensor& tensor : map->layers.at(0).tensors) {
        for (std::uint32_t expert = 0; expert < 16; ++expert) {
            seen.insert(sha256(bytes->bytes().subspan(tensor.slab_offset(expert), tensor.slab_bytes)));
        }
    }
    EXPECT_EQ(seen.size(), 3U * 16U);
}

TEST_F(Synth, SplitFilesHoldTheSameModel) {
    const SynthSpec spec = known_preset("tiny-mixtral");
    const LlamaRun whole = run_llama(make(spec), kTokens, kText);
    const std::filesystem::path first = make(spec, {.splits = 3}, "split.gguf");
    EXPECT_EQ(first.filename(), "split-00001-of-00003.gguf");
    EXPECT_EQ(files(), 1U + 3U);
    const LlamaRun split = run_llama(first, kTokens, kText);
    ASSERT_TRUE(split.decoded) << split.log;
    EXPECT_EQ(split.logits, whole.logits);
    Result<GgufModel> model = GgufModel::open(first);
    ASSERT_TRUE(model) << model.error().message;
    EXPECT_EQ(model->files().size(), 3U);
}

// Every type that weights can be made of, in the experts.
class ExpertType : public Synth, public testing::WithParamInterface<const char*> {};

TEST_P(ExpertType, RunsInLlama) {
    SynthSpec spec;
    spec.architecture = "qwen3moe";
    spec.layers = 1;
    spec.experts = 4;
    spec.hidden = 256;
    spec.ff = 256;
    spec.type = GetParam();
    expect_sane(run_llama(make(spec), kTokens, kText), spec.vocab);
}

INSTANTIATE_TEST_SUITE_P(All, ExpertType,
                         testing::Values("F32", "f16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K",
                                         "Q4_K", "Q5_K", "q6_k", "IQ2_XXS", "IQ3_XXS", "IQ4_NL", "IQ4_XS", "TQ2_0",
                                         "MXFP4"),
                         [](const auto& instance) { return std::string(instance.param); });

// The fewest layers that an architecture allows are enough for llama.cpp.
class Smallest : public Synth, public testing::WithParamInterface<std::string> {};

TEST_P(Smallest, RunsInLlama) {
    SynthSpec spec;
    spec.architecture = GetParam();
    spec.kv_heads = spec.heads;
    spec.vocab = 320;
    for (spec.layers = 1; spec.layers <= 4; ++spec.layers) {
        if (synthesize(spec, path())) break;
    }
    expect_sane(run_llama(path(), kTokens, kText), spec.vocab);
}

INSTANTIATE_TEST_SUITE_P(All, Smallest, testing::ValuesIn(synth_architectures()), [](const auto& instance) {
    std::string name = instance.param;
    std::replace(name.begin(), name.end(), '-', '_');
    return name;
});

// llama.cpp expects other tensors of a DeepSeek model with this many layers.
TEST_F(Synth, LiteDeepseekRuns) {
    SynthSpec spec;
    spec.architecture = "deepseek2";
    spec.layers = 27;
    spec.dense_layers = 1;
    spec.hidden = 64;
    spec.ff = 32;
    spec.vocab = 320;
    expect_sane(run_llama(make(spec), kTokens, kText), spec.vocab);
}

struct BigCase {
    const char* preset;
    std::uint64_t expert_bytes;  // of the first expert
    double share;                // of the model's bytes
};

TEST_F(Synth, HeadersOfThe122B) {
    for (const BigCase& expected :
         {BigCase{"qwen3.5-122b", 5308416, 0.86}, BigCase{"qwen3.5-122b-q4_k_m", 6119424, 0.92}}) {
        const SynthSpec spec = known_preset(expected.preset);
        const std::filesystem::path file = make(spec);
        EXPECT_LT(std::filesystem::file_size(file), 20U << 20);
        EXPECT_FALSE(GgufModel::open(file));
        Result<GgufModel> model = GgufModel::open(file, GgufLength::header_only);
        ASSERT_TRUE(model) << model.error().message;
        EXPECT_EQ(model->integer("kvasir.header_only"), 1U);
        Result<ExpertMap> map = map_experts(*model);
        ASSERT_TRUE(map) << map.error().message;
        EXPECT_EQ(map->expert_count(), 12544U);
        EXPECT_EQ(map->layers.at(0).expert_bytes(), expected.expert_bytes);
        EXPECT_EQ(map->layers.at(1).expert_bytes(), 5308416U);
        EXPECT_NEAR(static_cast<double>(map->expert_bytes) / static_cast<double>(map->model_bytes), expected.share,
                    0.005);
        EXPECT_NEAR(static_cast<double>(map->model_bytes), 77.6e9, 0.5e9);
    }
}

struct Refusal {
    const char* name;
    void (*change)(SynthSpec& spec);
    const char* message;
};

class Refused : public Synth, public testing::WithParamInterface<Refusal> {};

TEST_P(Refused, ByNameAndNothingWritten) {
    SynthSpec spec = known_preset("tiny-qwen3moe");
    GetParam().change(spec);
    Result<SynthReport> report = synthesize(spec, path());
    ASSERT_FALSE(report);
    EXPECT_THAT(report.error().message, HasSubstr(GetParam().message));
    EXPECT_EQ(files(), 0U);
}

INSTANTIATE_TEST_SUITE_P(
    All, Refused,
    testing::Values(
        Refusal{"hidden", [](SynthSpec& s) { s.hidden = 320; }, "--hidden is 320; q4_K needs a multiple of 256"},
        Refusal{"ff", [](SynthSpec& s) { s.ff = 300; }, "--ff is 300; q6_K needs a multiple of 256"},
        Refusal{"type", [](SynthSpec& s) { s.type = "Q9"; }, "--type: unknown type 'Q9'; known are f32,"},
        Refusal{"architecture", [](SynthSpec& s) { s.architecture = "x"; },
                "unknown architecture 'x'; known are qwen3moe,"},
        Refusal{"used", [](SynthSpec& s) { s.used = 9; }, "--used is 9; it must be from 1 to 8"},
        Refusal{"one_expert", [](SynthSpec& s) { s.experts = s.used = 1; }, "--experts is 1"},
        Refusal{"no_experts", [](SynthSpec& s) { s.experts = 0; }, "'qwen3moe' has no form without experts"},
        Refusal{"layers", [](SynthSpec& s) { s.layers = 0; }, "--layers is 0"},
        Refusal{"vocab", [](SynthSpec& s) { s.vocab = 100; }, "--vocab is 100; it must be from 260"},
        Refusal{"heads", [](SynthSpec& s) { s.kv_heads = 3; }, "--heads (4) must be a multiple of --kv-heads (3)"},
        Refusal{"mtp", [](SynthSpec& s) { s.mtp_layers = 1; }, "'qwen3moe' has no MTP blocks"},
        Refusal{"groups", [](SynthSpec& s) { s.architecture = "deepseek2", s.groups = 3; }, "8 experts in 3 groups"},
        Refusal{"square", [](SynthSpec& s) { s.architecture = "olmoe", s.kv_heads = 4; },
                "--heads x --head-dim = --hidden"},
        Refusal{"space", [](SynthSpec& s) { s.layers = 500, s.experts = 1024, s.hidden = s.ff = 65536; }, " needed, "}),
    [](const auto& instance) { return std::string(instance.param.name); });

TEST_F(Synth, RefusesUnknownPresetsListingTheKnown) {
    Result<SynthSpec> unknown = preset("nonesuch");
    ASSERT_FALSE(unknown);
    EXPECT_EQ(unknown.error().kind, ErrorKind::usage);
    EXPECT_THAT(unknown.error().message, HasSubstr("'nonesuch'; known are tiny-qwen3moe,"));
    EXPECT_THAT(unknown.error().message, HasSubstr("qwen3.5-122b"));
}

TEST_F(Synth, RefusesImpossibleOutputs) {
    const SynthSpec spec = known_preset("tiny-mixtral");
    Result<SynthReport> nowhere = synthesize(spec, path("missing") / "model.gguf");
    ASSERT_FALSE(nowhere);
    EXPECT_EQ(nowhere.error().kind, ErrorKind::usage);
    EXPECT_NE(nowhere.error().message.find("missing does not exist"), std::string::npos) << nowhere.error().message;
    EXPECT_FALSE(synthesize(spec, directory_->path()));
    EXPECT_FALSE(synthesize(spec, path(), {.splits = 0}));
    EXPECT_FALSE(synthesize(spec, path(), {.splits = 10000}));
    EXPECT_EQ(files(), 0U);
}

}  // namespace
}  // namespace kvasir
