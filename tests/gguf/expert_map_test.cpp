#include "gguf/expert_map.h"

#include <fmt/format.h>
#include <ggml.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gguf/gguf_builder.h"

namespace kvasir {
namespace {

using ::testing::AllOf;
using testing::GgufBuilder;
using ::testing::HasSubstr;
using testing::tiny_moe;
using testing::tiny_moe_metadata;
using testing::TinyMoe;

constexpr std::uint64_t kHidden = 64;
constexpr std::uint64_t kFf = 32;
constexpr std::uint64_t kExperts = 4;

Result<ExpertMap> map_of(const GgufBuilder& builder) {
    const ByteVector header = builder.header();
    Result<GgufModel> model = GgufModel::parse(header, header.size(), GgufLength::header_only);
    if (!model) return fail(model.error());
    return map_experts(*model);
}

std::string error_of(const GgufBuilder& builder) {
    Result<ExpertMap> map = map_of(builder);
    EXPECT_FALSE(map.has_value());
    return map ? "" : map.error().message;
}

// One layer, its tensors named after "blk.0.", added one by one.
class Layer {
  public:
    explicit Layer(const std::string& architecture) : builder_(tiny_moe_metadata({.architecture = architecture})) {}
    Layer& weight(std::string_view part, std::uint64_t columns, std::uint64_t rows, std::uint64_t experts = kExperts) {
        builder_.tensor(fmt::format("blk.0.ffn_{}_exps.weight", part), GGML_TYPE_F16, {columns, rows, experts});
        return *this;
    }
    Layer& gate() { return weight("gate", kHidden, kFf); }
    Layer& up() { return weight("up", kHidden, kFf); }
    Layer& down() { return weight("down", kFf, kHidden); }
    Layer& gate_up() { return weight("gate_up", kHidden, 2 * kFf); }
    Layer& bias(std::string_view part, std::uint64_t rows, std::uint64_t experts = kExperts,
                std::uint32_t type = GGML_TYPE_F32) {
        builder_.tensor(fmt::format("blk.0.ffn_{}_exps.bias", part), type, {rows, experts});
        return *this;
    }
    Layer& scale(std::string_view part, std::uint64_t experts = kExperts) {
        builder_.tensor(fmt::format("blk.0.ffn_{}_exps.scale", part), GGML_TYPE_F32, {experts});
        return *this;
    }
    GgufBuilder& builder() { return builder_; }

  private:
    GgufBuilder builder_;
};

// The recipe of the only layer.
Recipe recipe_of(Layer& layer) {
    Result<ExpertMap> map = map_of(layer.builder());
    EXPECT_TRUE(map) << map.error().message;
    return map && map->layers.size() == 1 ? map->layers[0].recipe : Recipe{};
}

TEST(ExpertMap, ReadsTensorNames) {
    for (int i = 0; i < kRoleCount; ++i) {
        const auto role = static_cast<Role>(i);
        const std::string name = expert_tensor_name(17, role);
        EXPECT_EQ(parse_expert_tensor_name(name), (ExpertTensorName{17, role, 0})) << name;
        EXPECT_EQ(parse_expert_tensor_name(name + ".3"), (ExpertTensorName{17, role, 3})) << name;
        EXPECT_STRNE(role_name(role), "unknown");
    }
    for (const char* name :
         {"blk.0.ffn_up.weight", "blk.0.ffn_up_shexp.weight", "blk.0.ffn_norm_exps.weight", "blk..ffn_up_exps.weight",
          "blk.-1.ffn_up_exps.weight", "blk.0.ffn_up_exps.weight.0", "blk.0.ffn_up_exps.weight.x",
          "blk.0.ffn_up_exps.weight2", "blk.0.ffn_up_exps.input_scale", "blk.99999999999.ffn_up_exps.weight",
          "blk.1000001.ffn_up_exps.weight", "ffn_up_exps.weight", "blk.0.ffn_up_chexps.weight", "", "blk."}) {
        EXPECT_EQ(parse_expert_tensor_name(name), std::nullopt) << name;
    }
}

TEST(ExpertMap, MapsAModel) {
    const GgufBuilder builder = tiny_moe({.layers = 3});
    const ByteVector bytes = builder.build();
    Result<GgufModel> model = GgufModel::parse(bytes, bytes.size(), GgufLength::complete);
    ASSERT_TRUE(model) << model.error().message;
    Result<ExpertMap> map = map_experts(*model);
    ASSERT_TRUE(map) << map.error().message;
    EXPECT_EQ(map->architecture, "qwen3moe");
    EXPECT_EQ(map->name, "Tiny");
    EXPECT_EQ(map->block_count, 3U);
    EXPECT_EQ(map->experts_used, 2U);
    EXPECT_EQ(map->hidden, kHidden);
    EXPECT_EQ(map->expert_count(), 12U);
    ASSERT_EQ(map->layers.size(), 3U);
    const ExpertLayer& layer = map->layers[1];
    EXPECT_EQ(layer.layer, 1U);
    EXPECT_EQ(layer.experts, kExperts);
    EXPECT_EQ(layer.hidden, kHidden);
    EXPECT_EQ(layer.ff, kFf);
    const std::uint64_t slab = kHidden * kFf / 32 * 34;  // Q8_0
    EXPECT_EQ(layer.expert_bytes(), 3 * slab);
    EXPECT_EQ(map->expert_bytes, 3 * 3 * slab * kExperts);
    EXPECT_EQ(map->model_bytes, map->expert_bytes + kHidden * 8 * 4);
    const ExpertTensor* down = layer.find(Role::down);
    ASSERT_NE(down, nullptr);
    EXPECT_EQ(down->slab_bytes, slab);
    EXPECT_EQ(down->slab_offset(0), model->find("blk.1.ffn_down_exps.weight")->offset);
    EXPECT_EQ(down->slab_offset(3), down->slab_offset(0) + 3 * slab);
    EXPECT_EQ(map->find(2), &map->layers[2]);
    EXPECT_EQ(map->find(3), nullptr);
    EXPECT_EQ(layer.find(Role::gate_up), nullptr);
}

TEST(ExpertMap, ADenseModelHasNoLayers) {
    GgufBuilder builder;
    builder.text("general.architecture", "llama").tensor("blk.0.ffn_up.weight", GGML_TYPE_F32, {4, 4});
    Result<ExpertMap> map = map_of(builder);
    ASSERT_TRUE(map) << map.error().message;
    EXPECT_TRUE(map->layers.empty());
    EXPECT_EQ(map->expert_bytes, 0U);
    EXPECT_EQ(map->model_bytes, 64U);
}

TEST(ExpertMap, MapsEveryRole) {
    Layer separate("gpt-oss");
    separate.gate().up().down().bias("gate", kFf).bias("up", kFf).bias("down", kHidden);
    separate.scale("gate").scale("up").scale("down");
    Result<ExpertMap> map = map_of(separate.builder());
    ASSERT_TRUE(map) << map.error().message;
    const ExpertLayer& layer = map->layers.at(0);
    EXPECT_EQ(layer.tensors.size(), 9U);
    EXPECT_EQ(layer.find(Role::down_bias)->slab_bytes, kHidden * 4);
    EXPECT_EQ(layer.find(Role::up_scale)->slab_bytes, 4U);
    const Recipe& recipe = layer.recipe;
    EXPECT_TRUE(recipe.gate_bias && recipe.up_bias && recipe.down_bias);
    EXPECT_TRUE(recipe.gate_scale && recipe.up_scale && recipe.down_scale);

    Layer fused("gemma4");
    fused.gate_up().down().bias("gate_up", 2 * kFf).scale("up").scale("down");
    map = map_of(fused.builder());
    ASSERT_TRUE(map) << map.error().message;
    EXPECT_EQ(map->layers.at(0).find(Role::gate_up)->slab_bytes, kHidden * 2 * kFf * 2);
    const Recipe fused_recipe = map->layers.at(0).recipe;
    EXPECT_EQ(fused_recipe, (Recipe{.activation = Activation::gelu,
                                    .fused_gate_up = true,
                                    .up_bias = true,
                                    .up_scale = true,
                                    .down_scale = true}));
}

TEST(ExpertMap, TakesActivationsFromTheArchitecture) {
    for (const char* architecture :
         {"qwen2moe",   "qwen3moe",    "qwen3next", "qwen35moe", "deepseek2", "glm4moe",    "llama",
          "llama4",     "granitemoe",  "olmoe",     "dbrx",      "phimoe",    "minimax-m2", "ernie4_5-moe",
          "bailingmoe", "hunyuan-moe", "lfm2moe",   "arctic",    "jamba",     "afmoe"}) {
        EXPECT_EQ(recipe_of(Layer(architecture).gate().up().down()), (Recipe{.activation = Activation::silu}))
            << architecture;
    }
    EXPECT_EQ(recipe_of(Layer("grok").gate().up().down()).activation, Activation::gelu);
    EXPECT_EQ(recipe_of(Layer("smallthinker").gate().up().down()).activation, Activation::relu);
    EXPECT_EQ(recipe_of(Layer("nemotron_h_moe").up().down()),
              (Recipe{.activation = Activation::relu_squared, .gated = false}));
    EXPECT_EQ(recipe_of(Layer("gpt-oss").gate().up().down()),
              (Recipe{.activation = Activation::swiglu_oai, .alpha = 1.702F, .limit = 7.0F}));
    EXPECT_EQ(recipe_of(Layer("something-new").gate().up().down()).activation, Activation::unknown);
    // llama.cpp has no gated ReLU².
    EXPECT_EQ(recipe_of(Layer("nemotron_h_moe").gate().up().down()).activation, Activation::unknown);
    EXPECT_EQ(recipe_of(Layer("gpt-oss").up().down()), (Recipe{.gated = false}));
}

TEST(ExpertMap, ReadsClampsPerLayer) {
    const auto clamped = [](const char* architecture, float limit) {
        Layer layer(architecture);
        layer.gate().up().down().builder().f32_array(fmt::format("{}.swiglu_clamp_exp", architecture), {limit, 3});
        return recipe_of(layer);
    };
    EXPECT_EQ(clamped("deepseek4", 10), (Recipe{.activation = Activation::swiglu_clamp, .limit = 10}));
    EXPECT_EQ(clamped("step35", 7), (Recipe{.activation = Activation::swiglu_limited, .limit = 7}));
    EXPECT_EQ(clamped("step35", 0), (Recipe{.activation = Activation::silu}));
    EXPECT_EQ(clamped("qwen3moe", 7), (Recipe{.activation = Activation::silu}));  // not read for this one
    Layer scalar("deepseek4");
    scalar.gate().up().down().builder().f32("deepseek4.swiglu_clamp_exp", 5);
    EXPECT_EQ(recipe_of(scalar).limit, 5);
    Layer fused("deepseek4");
    fused.gate_up().down().builder().f32("deepseek4.swiglu_clamp_exp", 5);
    EXPECT_EQ(recipe_of(fused), (Recipe{.activation = Activation::silu, .fused_gate_up = true}));
}

TEST(ExpertMap, RefusesIncompleteLayers) {
    EXPECT_THAT(error_of(Layer("llama").gate().up().builder()), HasSubstr("layer 0 has routed experts without blk.0."));
    EXPECT_THAT(error_of(Layer("llama").gate().down().builder()), HasSubstr("no ffn_up_exps"));
    EXPECT_THAT(error_of(Layer("llama").gate_up().up().down().builder()), HasSubstr("separate gate or up"));
    EXPECT_THAT(error_of(Layer("llama").up().down().bias("gate", kFf).builder()),
                HasSubstr("blk.0.ffn_gate_exps.bias: there is no blk.0.ffn_gate_exps.weight"));
    EXPECT_THAT(error_of(Layer("llama").up().down().scale("gate").builder()), HasSubstr("ffn_gate_exps.scale"));
    EXPECT_THAT(error_of(Layer("llama").gate_up().down().bias("up", kFf).builder()), HasSubstr("ffn_up_exps.bias"));
    EXPECT_THAT(error_of(Layer("llama").gate().up().down().bias("gate_up", kFf).builder()),
                HasSubstr("ffn_gate_up_exps.bias"));
}

TEST(ExpertMap, RefusesShapesThatContradictEachOther) {
    EXPECT_THAT(error_of(Layer("llama").up().down().weight("gate", kHidden, kFf, 3).builder()),
                AllOf(HasSubstr("blk.0.ffn_gate_exps.weight [64, 32, 3]"), HasSubstr("3 experts"), HasSubstr("for 4")));
    EXPECT_THAT(error_of(Layer("llama").down().weight("up", kHidden, 2 * kFf).builder()),
                HasSubstr("blk.0.ffn_up_exps.weight [64, 64, 4] does not fit hidden 64, ff 32"));
    EXPECT_THAT(error_of(Layer("llama").up().down().bias("down", kFf).builder()), HasSubstr("ffn_down_exps.bias"));
    EXPECT_THAT(error_of(Layer("llama").up().down().scale("down", 5).builder()), HasSubstr("5 experts"));
    EXPECT_THAT(error_of(Layer("llama").up().down().bias("down", kHidden, kExperts, GGML_TYPE_F16).builder()),
                HasSubstr("must be F32, this is F16"));
    GgufBuilder four = Layer("llama").down().builder();
    four.tensor("blk.0.ffn_up_exps.weight", GGML_TYPE_F16, {kHidden, kFf, kExperts, 2});
    EXPECT_THAT(error_of(four), HasSubstr("[64, 32, 4, 2]"));
}

TEST(ExpertMap, RefusesPiecesOfASlice) {
    GgufBuilder builder = tiny_moe();
    builder.tensor("blk.0.ffn_up_exps.weight.1", GGML_TYPE_F16, {kHidden, kFf, kExperts});
    EXPECT_THAT(error_of(builder), HasSubstr("slice"));
}

TEST(ExpertMap, OneExpertMayLackItsDimension) {
    GgufBuilder builder = tiny_moe_metadata({});
    builder.tensor("blk.0.ffn_up_exps.weight", GGML_TYPE_F16, {kHidden, kFf});
    builder.tensor("blk.0.ffn_down_exps.weight", GGML_TYPE_F16, {kFf, kHidden});
    Result<ExpertMap> map = map_of(builder);
    ASSERT_TRUE(map) << map.error().message;
    EXPECT_EQ(map->layers.at(0).experts, 1U);
}

TEST(ExpertMap, MapsTheBundledModel) {
    Result<GgufModel> model = GgufModel::open(KVASIR_MODELS "/kvasir-tales-q4_k_m.gguf");
    ASSERT_TRUE(model) << model.error().message;
    Result<ExpertMap> map = map_experts(*model);
    ASSERT_TRUE(map) << map.error().message;
    EXPECT_EQ(map->layers.size(), 6U);
    EXPECT_EQ(map->block_count, 6U);
    EXPECT_EQ(map->expert_count(), 6U * 32);
    EXPECT_EQ(map->experts_used, 4U);
    std::size_t mixed = 0;
    for (const ExpertLayer& layer : map->layers) {
        EXPECT_EQ(layer.experts, 32U);
        EXPECT_EQ(layer.recipe, (Recipe{.activation = Activation::silu}));
        if (layer.find(Role::down)->info.type == GGML_TYPE_Q6_K) ++mixed;
    }
    EXPECT_EQ(mixed, 2U);
    EXPECT_GT(map->expert_bytes, map->model_bytes * 9 / 10);
    EXPECT_LT(map->expert_bytes, map->model_bytes);
}

}  // namespace
}  // namespace kvasir
