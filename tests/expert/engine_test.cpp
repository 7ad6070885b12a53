#include "expert/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "expert/arithmetic.h"
#include "expert/random_layer.h"
#include "expert/recipes.h"
#include "expert/reference.h"
#include "gguf/gguf_file.h"

namespace kvasir {
namespace {

using test::LayerShape;
using test::RandomLayer;
using testing::HasSubstr;

std::unique_ptr<Engine> make_engine(int threads) {
    select_exact_kernels();
    Result<std::unique_ptr<Engine>> engine = Engine::create(Arithmetic::ggml_cpu, threads);
    EXPECT_TRUE(engine.has_value());
    return std::move(*engine);
}

std::vector<float> compute(Engine& engine, const RandomLayer& layer, std::span<const float> rows,
                           std::span<const Pair> pairs) {
    std::vector<float> out(pairs.size() * layer.weights().hidden, NAN);
    Status status = engine.compute(layer.weights(), layer.recipe(), std::as_bytes(rows), pairs,
                                   std::as_writable_bytes(std::span(out)));
    EXPECT_TRUE(status.has_value()) << status.error().message;
    return out;
}

// Every pair in a call of its own, on one thread.
std::vector<float> compute_alone(const RandomLayer& layer, std::span<const float> rows, std::span<const Pair> pairs) {
    const std::size_t hidden = layer.weights().hidden;
    auto engine = make_engine(1);
    std::vector<float> out;
    for (const Pair& pair : pairs) {
        const std::vector<Pair> alone = {{0, pair.expert}};
        const std::vector<float> one = compute(*engine, layer, rows.subspan(pair.row * hidden, hidden), alone);
        out.insert(out.end(), one.begin(), one.end());
    }
    return out;
}

void expect_same_bits(std::span<const float> left, std::span<const float> right) {
    ASSERT_EQ(left.size(), right.size());
    EXPECT_EQ(std::memcmp(left.data(), right.data(), left.size_bytes()), 0);
}

// Whatever the company, the order and the number of threads: the same bits, which are llama.cpp's.
void expect_exact(const RandomLayer& layer, std::uint32_t row_count, std::uint32_t slots, std::uint32_t seed,
                  double tolerance) {
    std::mt19937 random(seed);
    const std::vector<float> rows = test::random_floats(random, row_count * layer.weights().hidden, -1, 1);
    std::vector<Pair> pairs = test::random_pairs(random, row_count, slots, layer.weights().experts);
    const std::vector<float> alone = compute_alone(layer, rows, pairs);
    test::expect_close(layer, rows, std::span(pairs).first(std::min<std::size_t>(pairs.size(), 3)), alone, tolerance);
    expect_same_bits(test::llama_graph_output(layer, rows, pairs), alone);
    for (int threads : {1, 2, 3})
        expect_same_bits(compute(*make_engine(threads), layer, rows, pairs), alone);

    const std::size_t hidden = layer.weights().hidden;
    std::vector<std::size_t> order(pairs.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::shuffle(order, random);
    std::vector<Pair> shuffled;
    std::vector<float> expected;
    for (std::size_t index : order) {
        shuffled.push_back(pairs[index]);
        expected.insert(expected.end(), alone.begin() + static_cast<std::ptrdiff_t>(index * hidden),
                        alone.begin() + static_cast<std::ptrdiff_t>((index + 1) * hidden));
    }
    expect_same_bits(compute(*make_engine(2), layer, rows, shuffled), expected);
}

struct TypeCase {
    ggml_type type;
    double tolerance;  // of the activations' quantisation, relative to the output's root mean square
};

class EngineTypes : public testing::TestWithParam<TypeCase> {};

// More than eight rows per expert, where ggml switches kernels if it may.
TEST_P(EngineTypes, BitsDoNotDependOnGroupingOrderOrThreads) {
    const auto [type, tolerance] = GetParam();
    const RandomLayer layer({.activation = Activation::silu}, {256, 256, 2, type, type}, 7);
    expect_exact(layer, 12, 2, 11, tolerance);
}

INSTANTIATE_TEST_SUITE_P(
    AllWeightTypes, EngineTypes,
    testing::Values(TypeCase{GGML_TYPE_F32, 1e-4}, TypeCase{GGML_TYPE_F16, 1e-2}, TypeCase{GGML_TYPE_BF16, 0.15},
                    TypeCase{GGML_TYPE_Q8_0, 0.15}, TypeCase{GGML_TYPE_Q4_0, 0.15}, TypeCase{GGML_TYPE_Q4_1, 0.15},
                    TypeCase{GGML_TYPE_Q5_0, 0.15}, TypeCase{GGML_TYPE_Q5_1, 0.15}, TypeCase{GGML_TYPE_Q2_K, 0.15},
                    TypeCase{GGML_TYPE_Q3_K, 0.15}, TypeCase{GGML_TYPE_Q4_K, 0.15}, TypeCase{GGML_TYPE_Q5_K, 0.15},
                    TypeCase{GGML_TYPE_Q6_K, 0.15}, TypeCase{GGML_TYPE_IQ4_NL, 0.15}, TypeCase{GGML_TYPE_IQ4_XS, 0.15},
                    TypeCase{GGML_TYPE_MXFP4, 0.15}, TypeCase{GGML_TYPE_IQ2_XXS, 0.15},
                    TypeCase{GGML_TYPE_IQ2_XS, 0.15}, TypeCase{GGML_TYPE_IQ2_S, 0.15},
                    TypeCase{GGML_TYPE_IQ3_XXS, 0.15}, TypeCase{GGML_TYPE_IQ3_S, 0.15}, TypeCase{GGML_TYPE_IQ1_S, 0.15},
                    TypeCase{GGML_TYPE_IQ1_M, 0.15}, TypeCase{GGML_TYPE_TQ1_0, 0.15}, TypeCase{GGML_TYPE_TQ2_0, 0.15}),
    [](const auto& param_info) { return std::string(ggml_type_name(param_info.param.type)); });

class EngineRecipes : public testing::TestWithParam<test::NamedRecipe> {};

TEST_P(EngineRecipes, AgreesWithItsDefinition) {
    const RandomLayer layer(GetParam().recipe, {96, 72, 5, GGML_TYPE_F32, GGML_TYPE_F32}, 3);
    expect_exact(layer, 6, 3, 5, 2e-3);  // ggml's GELU is a table of half-precision numbers
}

INSTANTIATE_TEST_SUITE_P(AllRecipes, EngineRecipes, testing::ValuesIn(test::all_recipes()),
                         [](const auto& param_info) { return std::string(param_info.param.name); });

struct WidthCase {
    const char* name;
    LayerShape shape;
};
class EngineWidths : public testing::TestWithParam<WidthCase> {};

TEST_P(EngineWidths, RowsThatAreNotMultiplesOf256) {
    const RandomLayer layer({.activation = Activation::silu}, GetParam().shape, 9);
    expect_exact(layer, 6, 2, 13, 0.15);
}

INSTANTIATE_TEST_SUITE_P(Widths, EngineWidths,
                         testing::Values(WidthCase{"mxfp4_2880", {2880, 64, 3, GGML_TYPE_MXFP4, GGML_TYPE_MXFP4}},
                                         WidthCase{"mxfp4_inner_2880", {64, 2880, 3, GGML_TYPE_MXFP4, GGML_TYPE_MXFP4}},
                                         WidthCase{"q8_0_1408", {1408, 96, 3, GGML_TYPE_Q8_0, GGML_TYPE_Q8_0}},
                                         WidthCase{"q4k_then_q8_0_1408",
                                                   {256, 1408, 3, GGML_TYPE_Q4_K, GGML_TYPE_Q8_0}},
                                         WidthCase{"iq4_nl_1408", {1408, 1408, 2, GGML_TYPE_IQ4_NL, GGML_TYPE_IQ4_NL}},
                                         WidthCase{"f16_odd", {65, 33, 3, GGML_TYPE_F16, GGML_TYPE_F32}},
                                         WidthCase{"one_column", {1, 1, 3, GGML_TYPE_F32, GGML_TYPE_F32}}),
                         [](const auto& param_info) { return std::string(param_info.param.name); });

// Far more pairs than scratch memory holds at once, rows unused and used twice with one expert among them.
TEST(Engine, CutsLargeCallsIntoChunks) {
    const RandomLayer layer({.activation = Activation::silu}, {2048, 64, 7, GGML_TYPE_Q8_0, GGML_TYPE_Q8_0}, 1);
    std::mt19937 random(2);
    const std::vector<float> rows = test::random_floats(random, 50 * layer.weights().hidden, -1, 1);
    std::vector<Pair> pairs;
    for (int i = 0; i < 2000; ++i)
        pairs.push_back({static_cast<std::uint32_t>(random() % 40), static_cast<std::uint32_t>(random() % 7)});
    pairs.push_back(pairs.front());
    expect_same_bits(compute(*make_engine(2), layer, rows, pairs), compute_alone(layer, rows, pairs));
}

TEST(Engine, ServesLayersOfDifferentShapesInTurn) {
    const RandomLayer small({.activation = Activation::silu}, {64, 32, 3, GGML_TYPE_F32, GGML_TYPE_F32}, 1);
    const RandomLayer large({.activation = Activation::gelu, .fused_gate_up = true, .up_scale = true},
                            {512, 256, 9, GGML_TYPE_Q4_K, GGML_TYPE_Q6_K}, 2);
    std::mt19937 random(3);
    auto engine = make_engine(2);
    for (const RandomLayer* layer : {&small, &large, &small, &large}) {
        const std::vector<float> rows = test::random_floats(random, 20 * layer->weights().hidden, -1, 1);
        const std::vector<Pair> pairs = test::random_pairs(random, 20, 2, layer->weights().experts);
        expect_same_bits(compute(*engine, *layer, rows, pairs), compute_alone(*layer, rows, pairs));
    }
}

class EveryEngine : public testing::TestWithParam<Arithmetic> {
  protected:
    std::unique_ptr<Engine> engine() const { return std::move(*Engine::create(GetParam(), 1)); }
    std::string error_of(std::size_t row_bytes, std::vector<Pair> pairs, std::size_t out_bytes) {
        const ByteVector rows(row_bytes);
        ByteVector out(out_bytes);
        Status status = engine()->compute(layer_.weights(), layer_.recipe(), rows, pairs, out);
        if (status) return "";
        EXPECT_EQ(status.error().kind, ErrorKind::invalid);
        return status.error().message;
    }
    const RandomLayer layer_{{.activation = Activation::silu}, {64, 96, 4, GGML_TYPE_Q8_0, GGML_TYPE_F32}, 1};
    const std::size_t row_ = row_bytes(input_encoding(GetParam(), layer_.weights()), 64);
    const std::size_t out_ = row_bytes(output_encoding(GetParam()), 64);
};

TEST_P(EveryEngine, NothingAskedIsNothingDone) {
    EXPECT_TRUE(engine()->compute(layer_.weights(), layer_.recipe(), {}, {}, {}).has_value());
}

TEST_P(EveryEngine, RefusesImpossibleThreadCounts) {
    EXPECT_FALSE(Engine::create(GetParam(), 0).has_value());
    EXPECT_FALSE(Engine::create(GetParam(), 1'000'000).has_value());
}

TEST_P(EveryEngine, RefusesIndicesAndSizesOutOfBounds) {
    EXPECT_EQ(error_of(2 * row_, {{1, 3}}, out_), "");
    EXPECT_THAT(error_of(2 * row_, {{2, 0}}, out_), HasSubstr("row 2 of 2"));
    EXPECT_THAT(error_of(2 * row_, {{0, 4}}, out_), HasSubstr("expert 4 of 4"));
    EXPECT_THAT(error_of(2 * row_, {{0, UINT32_MAX}}, out_), HasSubstr("expert 4294967295"));
    EXPECT_THAT(error_of(0, {{0, 0}}, out_), HasSubstr("row 0 of 0"));
    EXPECT_THAT(error_of(row_ + 4, {{0, 0}}, out_), HasSubstr(fmt::format("{} bytes are not whole rows", row_ + 4)));
    for (std::size_t room : {2 * out_, out_ + 1, out_ - 1, std::size_t{0}}) {
        EXPECT_THAT(error_of(row_, {{0, 0}}, room), HasSubstr(fmt::format("room for {} bytes of output", room)));
    }
}

TEST_P(EveryEngine, RefusesARecipeThatIsNotTheWeights) {
    const Status status =
        engine()->compute(layer_.weights(), {.activation = Activation::silu, .up_bias = true}, {}, {}, {});
    ASSERT_FALSE(status);
    EXPECT_THAT(status.error().message, HasSubstr(role_name(Role::up_bias)));
}

INSTANTIATE_TEST_SUITE_P(All, EveryEngine,
                         testing::Values(Arithmetic::portable, Arithmetic::ggml_cpu, Arithmetic::exact),
                         [](const auto& param_info) {
                             std::string name(short_name(param_info.param));
                             std::ranges::replace(name, '-', '_');
                             return name;
                         });

class CheckRecipe : public testing::Test {
  protected:
    std::string error_of(const Recipe& recipe, Arithmetic arithmetic = Arithmetic::ggml_cpu) {
        Status status = check_recipe(arithmetic, recipe, layer_.weights());
        return status ? "" : status.error().message;
    }
    // Of weights or rows that portable/1 does not define.
    std::string undefined() {
        Status status = check_recipe(Arithmetic::portable, recipe_, layer_.weights());
        if (status) return "";
        EXPECT_EQ(status.error().kind, ErrorKind::unsupported);
        return status.error().message;
    }
    WeightView& view(Role role) { return *layer_.weights().tensors[static_cast<std::size_t>(role)]; }
    RandomLayer layer_{
        {.activation = Activation::silu, .down_bias = true}, {256, 64, 4, GGML_TYPE_Q4_K, GGML_TYPE_Q8_0}, 1};
    Recipe recipe_ = layer_.recipe();
};

TEST_F(CheckRecipe, RefusesUnknownAndContradictoryRecipes) {
    EXPECT_EQ(error_of(recipe_), "");
    EXPECT_THAT(error_of(Recipe{}), HasSubstr("activation 255"));
    EXPECT_THAT(error_of(Recipe{.activation = static_cast<Activation>(99)}), HasSubstr("activation 99"));
    EXPECT_THAT(error_of(Recipe{.activation = Activation::relu_squared}), HasSubstr("with a gate"));
    EXPECT_THAT(error_of(Recipe{.activation = Activation::swiglu_oai, .gated = false, .limit = 7}),
                HasSubstr("without a gate"));
    EXPECT_THAT(error_of(Recipe{.activation = Activation::swiglu_clamp, .limit = -1}), HasSubstr("limit of -1"));
    EXPECT_THAT(error_of(Recipe{.activation = Activation::swiglu_oai, .alpha = NAN, .limit = 7}), HasSubstr("alpha"));
    EXPECT_THAT(error_of(Recipe{.activation = Activation::silu, .gated = false, .fused_gate_up = true}),
                HasSubstr("fused"));
    EXPECT_THAT(error_of(Recipe{.activation = Activation::silu, .gated = false, .gate_bias = true}),
                HasSubstr("fused or absent"));
}

TEST_F(CheckRecipe, NamesMissingAndUnexpectedTensors) {
    recipe_.down_bias = false;
    EXPECT_THAT(error_of(recipe_), HasSubstr(role_name(Role::down_bias)));
    recipe_.down_bias = true;
    recipe_.up_scale = true;
    EXPECT_THAT(error_of(recipe_), HasSubstr(role_name(Role::up_scale)));
    EXPECT_THAT(error_of(Recipe{.activation = Activation::silu, .gated = false, .down_bias = true}),
                HasSubstr("leaves out"));
}

TEST_F(CheckRecipe, RefusesTensorsThatGgmlWouldAbortOn) {
    const WeightView up = view(Role::up);
    view(Role::up).type = GGML_TYPE_I32;
    EXPECT_THAT(error_of(recipe_), HasSubstr("cannot multiply"));
    view(Role::up).type = 4;  // removed from ggml
    EXPECT_THAT(error_of(recipe_), HasSubstr("cannot multiply"));
    view(Role::up).type = 12345;
    EXPECT_THAT(error_of(recipe_), HasSubstr("cannot multiply"));
    view(Role::up) = up;
    view(Role::up).shape[1] = 65;
    EXPECT_THAT(error_of(recipe_), HasSubstr("shape"));
    view(Role::up) = up;
    view(Role::up).data = nullptr;
    EXPECT_THAT(error_of(recipe_), HasSubstr("outside the file"));
    view(Role::up).data = up.data + 1;
    EXPECT_THAT(error_of(recipe_), HasSubstr("not aligned"));
    view(Role::up) = up;
    view(Role::down_bias).type = GGML_TYPE_F16;
    EXPECT_THAT(error_of(recipe_), HasSubstr("instead of F32"));
    view(Role::down_bias).type = GGML_TYPE_F32;
    view(Role::down).type = GGML_TYPE_Q4_K;  // 64 inner columns are no block of 256
    EXPECT_THAT(error_of(recipe_), HasSubstr("whole blocks"));
    view(Role::down).type = GGML_TYPE_Q8_0;
    EXPECT_EQ(error_of(recipe_), "");
    layer_.weights().hidden = std::uint64_t{1} << 40;
    EXPECT_THAT(error_of(recipe_), HasSubstr("geometry"));
}

TEST_F(CheckRecipe, PortableNamesWhatItDoesNotDefine) {
    EXPECT_EQ(undefined(), "");
    const WeightView up = view(Role::up);
    for (std::uint32_t type :
         {std::uint32_t{GGML_TYPE_I32}, std::uint32_t{GGML_TYPE_Q8_K}, std::uint32_t{GGML_TYPE_Q2_0}, std::uint32_t{4},
          std::uint32_t{GGML_TYPE_COUNT}, std::uint32_t{12345}, UINT32_MAX}) {
        view(Role::up).type = type;
        EXPECT_THAT(undefined(), testing::AllOf(HasSubstr(role_name(Role::up)), HasSubstr("portable/1"),
                                                HasSubstr(type_name(type))));
    }
    view(Role::up) = up;
    view(Role::down).type = GGML_TYPE_Q4_K;  // 64 inner columns are no block of 256
    EXPECT_THAT(undefined(), testing::AllOf(HasSubstr(role_name(Role::down)), HasSubstr("64 columns")));
}

TEST_F(CheckRecipe, PortableChecksTensorsAsGgmlDoes) {
    const auto error = [&] { return error_of(recipe_, Arithmetic::portable); };
    EXPECT_EQ(error(), "");
    EXPECT_THAT(error_of(Recipe{.activation = Activation::relu_squared}, Arithmetic::portable),
                HasSubstr("with a gate"));
    const WeightView up = view(Role::up);
    view(Role::up).shape[1] = 65;
    EXPECT_THAT(error(), HasSubstr("shape"));
    view(Role::up) = up;
    view(Role::up).data = nullptr;
    EXPECT_THAT(error(), HasSubstr("outside the file"));
    view(Role::up) = up;
    view(Role::down_bias).type = GGML_TYPE_F16;
    EXPECT_THAT(error(), HasSubstr("instead of F32"));
}

TEST(ViewWeights, LeavesBytesOutsideTheFileOut) {
    ExpertLayer layer;
    layer.experts = 2;
    layer.hidden = 8;
    layer.ff = 4;
    ExpertTensor up{Role::up, {}, 128};
    up.info.shape = {8, 4, 2, 1};
    up.info.offset = 32;
    up.info.bytes = 256;
    layer.tensors = {up};
    ByteVector file(288);
    const std::vector<ByteSpan> whole = {file};
    EXPECT_EQ(view_weights(layer, whole)[Role::up]->data, file.data() + 32);
    const std::vector<ByteSpan> cut = {ByteSpan(file).first(287)};
    EXPECT_EQ(view_weights(layer, cut)[Role::up]->data, nullptr);
    EXPECT_EQ(view_weights(layer, {})[Role::up]->data, nullptr);
}

}  // namespace
}  // namespace kvasir
