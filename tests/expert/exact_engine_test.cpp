// The engine that the others are held against: nothing is lost but the last rounding to f32.
#include "expert/exact_engine.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "expert/random_layer.h"
#include "expert/recipes.h"
#include "expert/reference.h"

namespace kvasir {
namespace {

using test::RandomLayer;

void expect_exact(const RandomLayer& layer) {
    std::mt19937 random(3);
    const std::vector<float> rows = test::random_floats(random, 4 * layer.weights().hidden, -1, 1);
    std::vector<Pair> pairs = test::random_pairs(random, 4, 3, layer.weights().experts);
    std::ranges::shuffle(pairs, random);
    std::vector<float> first;
    for (int threads : {1, 2}) {
        std::vector<float> out(pairs.size() * layer.weights().hidden);
        const auto engine = std::move(*Engine::create(Arithmetic::exact, threads));
        ASSERT_TRUE(engine->compute(layer.weights(), layer.recipe(), std::as_bytes(std::span(rows)), pairs,
                                    std::as_writable_bytes(std::span(out))));
        test::expect_close(layer, rows, pairs, out, 1e-6);
        if (first.empty()) first = out;
        EXPECT_EQ(out, first);
    }
}

class ExactRecipes : public testing::TestWithParam<test::NamedRecipe> {};

TEST_P(ExactRecipes, GiveTheExactNumbers) {
    expect_exact(RandomLayer(GetParam().recipe, {96, 320, 5, GGML_TYPE_F32, GGML_TYPE_Q8_0}, 3));
}

INSTANTIATE_TEST_SUITE_P(AllRecipes, ExactRecipes, testing::ValuesIn(test::all_recipes()),
                         [](const auto& param_info) { return std::string(param_info.param.name); });

TEST(ExactEngine, ReadsWeightsOfMixedTypes) {
    expect_exact(
        RandomLayer({.activation = Activation::silu}, {256, 512, 4, GGML_TYPE_Q4_K, GGML_TYPE_BF16, GGML_TYPE_F16}, 3));
}

}  // namespace
}  // namespace kvasir
