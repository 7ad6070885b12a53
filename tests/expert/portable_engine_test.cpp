// The engine of portable/1 against the arithmetic's scalar reference, bit by bit, and against exact numbers, closely.
#include "expert/portable_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "expert/portable_reference.h"
#include "expert/random_layer.h"
#include "expert/recipes.h"
#include "expert/reference.h"
#include "portable/types.h"

namespace kvasir {
namespace {

using test::LayerShape;
using test::RandomLayer;

std::unique_ptr<Engine> make_engine(int threads) {
    Result<std::unique_ptr<Engine>> engine = Engine::create(Arithmetic::portable, threads);
    EXPECT_TRUE(engine.has_value());
    return std::move(*engine);
}

// Result rows, of rows as they travel.
ByteVector compute(Engine& engine, const RandomLayer& layer, ByteSpan rows, std::span<const Pair> pairs) {
    ByteVector out(pairs.size() * row_bytes(RowEncoding::i16x256, layer.weights().hidden), std::byte{0xEE});
    Status status = engine.compute(layer.weights(), layer.recipe(), rows, pairs, out);
    EXPECT_TRUE(status.has_value()) << status.error().message;
    return out;
}

std::vector<float> decoded(const RandomLayer& layer, ByteSpan results, std::size_t rows) {
    std::vector<float> numbers(rows * layer.weights().hidden);
    EXPECT_TRUE(decode_results(RowEncoding::i16x256, layer.weights().hidden, results, numbers));
    return numbers;
}

struct Call {
    std::vector<float> numbers;
    std::vector<Pair> pairs;
};

Call random_call(const RandomLayer& layer, std::uint32_t rows, std::uint32_t slots, std::uint32_t seed) {
    std::mt19937 random(seed);
    Call call;
    call.numbers = test::random_floats(random, rows * layer.weights().hidden, -1, 1);
    call.pairs = test::random_pairs(random, rows, slots, layer.weights().experts);
    return call;
}

// Whatever the company, the order and the number of threads: the reference's bits, and close to the exact numbers.
void expect_reference(const RandomLayer& layer, const Call& call, double tolerance) {
    const ByteVector expected = test::portable_output(layer.weights(), layer.recipe(), call.numbers, call.pairs);
    const ByteVector rows = test::encoded_rows(Arithmetic::portable, layer.weights(), call.numbers);
    for (int threads : {1, 2, 3}) {
        ASSERT_EQ(compute(*make_engine(threads), layer, rows, call.pairs), expected) << threads << " threads";
    }
    const std::size_t checked = std::min<std::size_t>(call.pairs.size(), 3);
    test::expect_close(layer, call.numbers, std::span(call.pairs).first(checked),
                       decoded(layer, ByteSpan(expected).first(expected.size() / call.pairs.size() * checked), checked),
                       tolerance);

    const std::size_t size = expected.size() / call.pairs.size();
    const auto result = [&](std::size_t pair) { return ByteSpan(expected).subspan(pair * size, size); };
    auto engine = make_engine(2);
    for (std::size_t i = 0; i < std::min<std::size_t>(call.pairs.size(), 8); ++i) {
        const ByteVector alone = compute(*engine, layer, rows, std::span(call.pairs).subspan(i, 1));
        ASSERT_TRUE(std::ranges::equal(alone, result(i))) << "pair " << i << " alone";
    }
    std::vector<std::size_t> order(call.pairs.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::shuffle(order, std::mt19937(1));
    std::vector<Pair> shuffled;
    for (std::size_t index : order)
        shuffled.push_back(call.pairs[index]);
    shuffled.push_back(shuffled.front());  // twice
    order.push_back(order.front());
    const ByteVector out = compute(*engine, layer, rows, shuffled);
    for (std::size_t i = 0; i < order.size(); ++i)
        ASSERT_TRUE(std::ranges::equal(ByteSpan(out).subspan(i * size, size), result(order[i]))) << "shuffled, " << i;
}

// ---- every type ----------------------------------------------------------------------------------------------------

std::vector<ggml_type> all_types() {
    std::vector<ggml_type> types;
    for (int type = 0; type < GGML_TYPE_COUNT; ++type) {
        if (portable::find_traits(static_cast<ggml_type>(type)) != nullptr)
            types.push_back(static_cast<ggml_type>(type));
    }
    return types;
}

// Of what quantising the rows and the inner rows costs, relative to the output's root mean square.
double tolerance_of(ggml_type type) {
    return portable::traits(type).form == portable::Form::f32 ? 2e-4 : 0.1;
}

class PortableTypes : public testing::TestWithParam<ggml_type> {};

TEST_P(PortableTypes, GiveTheReferencesBits) {
    const RandomLayer layer({.activation = Activation::silu}, {256, 256, 2, GetParam(), GetParam()}, 7);
    ASSERT_EQ(input_encoding(Arithmetic::portable, layer.weights()),
              static_cast<RowEncoding>(portable::traits(GetParam()).form));
    expect_reference(layer, random_call(layer, 12, 2, 11), tolerance_of(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(AllWeightTypes, PortableTypes, testing::ValuesIn(all_types()),
                         [](const auto& param_info) { return std::string(ggml_type_name(param_info.param)); });

// ---- every recipe --------------------------------------------------------------------------------------------------

class PortableRecipes : public testing::TestWithParam<std::tuple<test::NamedRecipe, ggml_type>> {};

// Of all three forms of rows; as many multiplications as make the whole team work.
TEST_P(PortableRecipes, GiveTheReferencesBits) {
    const auto& [named, type] = GetParam();
    const RandomLayer layer(named.recipe, {256, 512, 5, type, type}, 3);
    expect_reference(layer, random_call(layer, 5, 3, 5), tolerance_of(type));
}

INSTANTIATE_TEST_SUITE_P(AllRecipes, PortableRecipes,
                         testing::Combine(testing::ValuesIn(test::all_recipes()),
                                          testing::Values(GGML_TYPE_F32, GGML_TYPE_Q8_0, GGML_TYPE_Q4_K)),
                         [](const auto& param_info) {
                             return std::string(std::get<0>(param_info.param).name) + "_" +
                                    ggml_type_name(std::get<1>(param_info.param));
                         });

// ---- matrices of different types, rows of all widths ---------------------------------------------------------------

struct ShapeCase {
    const char* name;
    LayerShape shape;
    RowEncoding encoding;
    double tolerance = 0.1;
};
class PortableShapes : public testing::TestWithParam<ShapeCase> {};

TEST_P(PortableShapes, GiveTheReferencesBits) {
    const RandomLayer layer({.activation = Activation::silu}, GetParam().shape, 9);
    ASSERT_EQ(input_encoding(Arithmetic::portable, layer.weights()), GetParam().encoding);
    expect_reference(layer, random_call(layer, 6, 2, 13), GetParam().tolerance);
}

constexpr ggml_type kF32 = GGML_TYPE_F32;
constexpr ggml_type kQ8 = GGML_TYPE_Q8_0;
INSTANTIATE_TEST_SUITE_P(
    MixedTypes, PortableShapes,
    testing::Values(
        // Gate and up want different forms: their rows travel as they are.
        ShapeCase{"q4k_gate_q8_0_up", {256, 512, 3, kQ8, GGML_TYPE_F16, GGML_TYPE_Q4_K}, RowEncoding::f32},
        ShapeCase{"f32_gate_q6k_up", {512, 256, 3, GGML_TYPE_Q6_K, GGML_TYPE_Q2_K, kF32}, RowEncoding::f32},
        ShapeCase{"mxfp4_gate_bf16_up", {96, 64, 3, GGML_TYPE_BF16, kQ8, GGML_TYPE_MXFP4}, RowEncoding::f32},
        // Different types of one form; down of another.
        ShapeCase{
            "iq4_nl_gate_q4_0_up", {96, 256, 3, GGML_TYPE_Q4_0, GGML_TYPE_Q5_K, GGML_TYPE_IQ4_NL}, RowEncoding::q8x32},
        ShapeCase{
            "q6k_gate_q4k_up", {256, 96, 3, GGML_TYPE_Q4_K, GGML_TYPE_MXFP4, GGML_TYPE_Q6_K}, RowEncoding::q8x256},
        ShapeCase{"bf16_gate_f32_up", {40, 256, 3, kF32, GGML_TYPE_IQ4_XS, GGML_TYPE_BF16}, RowEncoding::f32},
        ShapeCase{"q4k_then_q8_0", {256, 1408, 3, GGML_TYPE_Q4_K, kQ8}, RowEncoding::q8x256},
        ShapeCase{"f16_then_q6k", {33, 256, 3, GGML_TYPE_F16, GGML_TYPE_Q6_K}, RowEncoding::f32}),
    [](const auto& param_info) { return std::string(param_info.param.name); });

INSTANTIATE_TEST_SUITE_P(
    Widths, PortableShapes,
    testing::Values(ShapeCase{"mxfp4_2880", {2880, 64, 3, GGML_TYPE_MXFP4, GGML_TYPE_MXFP4}, RowEncoding::q8x32},
                    ShapeCase{"mxfp4_inner_2880", {64, 2880, 3, GGML_TYPE_MXFP4, GGML_TYPE_MXFP4}, RowEncoding::q8x32},
                    ShapeCase{"nvfp4_2880", {2880, 64, 3, GGML_TYPE_NVFP4, GGML_TYPE_NVFP4}, RowEncoding::q8x32},
                    ShapeCase{"q8_0_1408", {1408, 96, 3, kQ8, kQ8}, RowEncoding::q8x32},
                    ShapeCase{"iq4_nl_1408", {1408, 704, 2, GGML_TYPE_IQ4_NL, GGML_TYPE_IQ4_NL}, RowEncoding::q8x32},
                    ShapeCase{"q5_1_32", {32, 32, 3, GGML_TYPE_Q5_1, GGML_TYPE_Q5_1}, RowEncoding::q8x32},
                    ShapeCase{"q4k_1280", {1280, 768, 2, GGML_TYPE_Q4_K, GGML_TYPE_Q4_K}, RowEncoding::q8x256},
                    ShapeCase{"f16_odd", {65, 33, 3, GGML_TYPE_F16, kF32}, RowEncoding::f32, 2e-4},
                    ShapeCase{"f32_257", {257, 300, 3, kF32, kF32}, RowEncoding::f32, 2e-4},
                    ShapeCase{"one_column", {1, 1, 3, kF32, kF32}, RowEncoding::f32, 2e-4}),
    [](const auto& param_info) { return std::string(param_info.param.name); });

// ---- calls ---------------------------------------------------------------------------------------------------------

// Far more pairs than scratch memory holds at once, rows unused and used twice with one expert among them.
TEST(PortableEngine, CutsLargeCallsIntoChunks) {
    const RandomLayer layer({.activation = Activation::silu}, {2048, 64, 5, kQ8, kQ8}, 1);
    std::mt19937 random(2);
    Call call;
    call.numbers = test::random_floats(random, 12 * layer.weights().hidden, -1, 1);
    for (int i = 0; i < 1500; ++i)
        call.pairs.push_back({static_cast<std::uint32_t>(random() % 9), static_cast<std::uint32_t>(random() % 5)});
    expect_reference(layer, call, 0.1);
}

TEST(PortableEngine, ServesLayersOfDifferentShapesInTurn) {
    const RandomLayer small({.activation = Activation::silu}, {64, 32, 3, kF32, kF32}, 1);
    const RandomLayer large({.activation = Activation::gelu, .fused_gate_up = true, .up_scale = true},
                            {512, 256, 9, GGML_TYPE_Q4_K, GGML_TYPE_Q6_K}, 2);
    const RandomLayer ungated({.activation = Activation::relu_squared, .gated = false}, {96, 64, 4, kQ8, kQ8}, 3);
    auto engine = make_engine(2);
    for (const RandomLayer* layer : {&small, &large, &ungated, &small, &large, &ungated}) {
        const Call call = random_call(*layer, 6, 2, 4);
        EXPECT_EQ(compute(*engine, *layer, test::encoded_rows(Arithmetic::portable, layer->weights(), call.numbers),
                          call.pairs),
                  test::portable_output(layer->weights(), layer->recipe(), call.numbers, call.pairs));
    }
}

// Numbers that no model makes, but a broken one may: a row's bits are its own, whatever its neighbours hold.
TEST(PortableEngine, NotANumberStaysInItsRow) {
    for (ggml_type type : {kF32, kQ8, GGML_TYPE_Q4_K}) {
        const RandomLayer layer({.activation = Activation::silu}, {256, 256, 2, type, type}, 5);
        Call call = random_call(layer, 4, 2, 6);
        call.numbers[256 + 7] = std::numeric_limits<float>::quiet_NaN();
        call.numbers[2 * 256 + 9] = std::numeric_limits<float>::infinity();
        const ByteVector rows = test::encoded_rows(Arithmetic::portable, layer.weights(), call.numbers);
        const ByteVector out = compute(*make_engine(2), layer, rows, call.pairs);
        EXPECT_EQ(out, test::portable_output(layer.weights(), layer.recipe(), call.numbers, call.pairs));
        const std::vector<float> numbers = decoded(layer, out, call.pairs.size());
        for (std::size_t i = 0; i < call.pairs.size(); ++i) {
            const bool spoilt = call.pairs[i].row == 1 || (call.pairs[i].row == 2 && type != kF32);
            const auto row = std::span(numbers).subspan(i * 256, 256);
            if (spoilt) {
                EXPECT_TRUE(std::ranges::all_of(row, [](float x) { return std::isnan(x); })) << "pair " << i;
            } else if (call.pairs[i].row != 2) {
                EXPECT_TRUE(std::ranges::none_of(row, [](float x) { return std::isnan(x); })) << "pair " << i;
            }
        }
    }
}

// What a row costs in precision on its way is what its matrix would do to it anyway.
TEST(PortableEngine, RowsTravelAsTheMatrixWantsThem) {
    const RandomLayer layer({.activation = Activation::silu}, {256, 256, 2, GGML_TYPE_Q4_K, kF32}, 5);
    const Call call = random_call(layer, 3, 1, 6);
    const ByteVector rows = test::encoded_rows(Arithmetic::portable, layer.weights(), call.numbers);
    EXPECT_EQ(rows.size(), 3 * 260U);
    EXPECT_EQ(input_encoding(Arithmetic::ggml_cpu, layer.weights()), RowEncoding::f32);
    EXPECT_EQ(output_encoding(Arithmetic::ggml_cpu), RowEncoding::f32);
    EXPECT_EQ(output_encoding(Arithmetic::portable), RowEncoding::i16x256);
}

}  // namespace
}  // namespace kvasir
