#include "gguf/recipe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace kvasir {
namespace {

using ::testing::HasSubstr;

ByteVector written(const Recipe& recipe) {
    ByteWriter writer;
    write_recipe(writer, recipe);
    return writer.buffer();
}

Result<Recipe> read(ByteSpan bytes) {
    ByteReader reader(bytes);
    return read_recipe(reader);
}

Recipe swiglu_oai() {
    return {.activation = Activation::swiglu_oai,
            .gate_bias = true,
            .up_bias = true,
            .down_bias = true,
            .alpha = 1.702F,
            .limit = 7.0F};
}

// Every recipe that llama.cpp can build, one of each kind.
std::vector<Recipe> valid_recipes() {
    return {
        {.activation = Activation::silu},
        {.activation = Activation::silu, .gated = false},
        {.activation = Activation::silu, .fused_gate_up = true, .up_scale = true, .down_scale = true},
        {.activation = Activation::silu, .gate_scale = true, .up_scale = true, .down_scale = true},
        {.activation = Activation::gelu, .fused_gate_up = true, .down_scale = true},
        {.activation = Activation::gelu, .gated = false},
        {.activation = Activation::relu},
        {.activation = Activation::relu_squared, .gated = false},
        {.activation = Activation::swiglu_clamp, .limit = 10.0F},
        {.activation = Activation::swiglu_limited, .limit = 7.5F},
        swiglu_oai(),
    };
}

TEST(Recipe, SurvivesTheWire) {
    for (const Recipe& recipe : valid_recipes()) {
        const ByteVector bytes = written(recipe);
        EXPECT_EQ(bytes.size(), kRecipeBytes);
        Result<Recipe> back = read(bytes);
        ASSERT_TRUE(back) << describe(recipe) << ": " << back.error().message;
        EXPECT_EQ(*back, recipe) << describe(recipe);
    }
}

TEST(Recipe, HasAFixedLayout) {
    const ByteVector bytes = written(swiglu_oai());
    // activation 4; flags gated, gate bias, up bias, down bias; version 1; 1.702f, 7.0f; zero
    const std::array<int, 16> wanted = {4, 0x1d, 0, 1, 0x23, 0xdb, 0xd9, 0x3f, 0, 0, 0xe0, 0x40, 0, 0, 0, 0};
    for (std::size_t i = 0; i < wanted.size(); ++i)
        EXPECT_EQ(std::to_integer<int>(bytes.at(i)), wanted[i]) << i;
}

TEST(Recipe, TooFewBytesAreRefused) {
    const ByteVector bytes = written(swiglu_oai());
    for (std::size_t size = 0; size < bytes.size(); ++size)
        EXPECT_FALSE(read(ByteSpan(bytes).first(size)));
}

TEST(Recipe, UnknownBytesAreRefusedByName) {
    const auto error = [](std::size_t at, std::uint8_t value) {
        ByteVector bytes = written({.activation = Activation::silu});
        bytes.at(at) = std::byte{value};
        Result<Recipe> recipe = read(bytes);
        return recipe ? std::string() : recipe.error().message;
    };
    EXPECT_THAT(error(0, 7), HasSubstr("activation 7"));
    EXPECT_THAT(error(0, 255), HasSubstr("activation 255"));
    EXPECT_THAT(error(2, 1), HasSubstr("flags 0x101"));
    EXPECT_THAT(error(3, 2), HasSubstr("version 2"));
    EXPECT_THAT(error(15, 1), HasSubstr("reserved"));
}

TEST(Recipe, ImpossibleCombinationsAreRefused) {
    const auto error = [](const Recipe& recipe) {
        Result<Recipe> back = read(written(recipe));
        return back ? std::string() : back.error().message;
    };
    EXPECT_THAT(error({.activation = Activation::relu_squared}), HasSubstr("ReLU² with a gate"));
    EXPECT_THAT(error({.activation = Activation::swiglu_oai, .gated = false, .limit = 7}), HasSubstr("needs a gate"));
    EXPECT_THAT(error({.activation = Activation::silu, .gated = false, .fused_gate_up = true}), HasSubstr("no gate"));
    EXPECT_THAT(error({.activation = Activation::silu, .gated = false, .gate_bias = true}), HasSubstr("no gate"));
    EXPECT_THAT(error({.activation = Activation::silu, .fused_gate_up = true, .gate_scale = true}), HasSubstr("fused"));
    EXPECT_THAT(error({.activation = Activation::swiglu_clamp}), HasSubstr("limit 0"));
    EXPECT_THAT(error({.activation = Activation::silu, .limit = 7}), HasSubstr("limit 7"));
    EXPECT_THAT(error({.activation = Activation::silu, .alpha = 2}), HasSubstr("alpha 2"));
    const float nan = std::numeric_limits<float>::quiet_NaN();
    EXPECT_THAT(error({.activation = Activation::swiglu_clamp, .limit = nan}), HasSubstr("not finite"));
    EXPECT_THAT(error({.activation = Activation::swiglu_clamp, .limit = -1}), HasSubstr("limit -1"));
}

TEST(Recipe, DescribesItself) {
    EXPECT_EQ(describe(Recipe{.activation = Activation::silu}), "SwiGLU");
    EXPECT_EQ(describe(swiglu_oai()), "SwiGLU-OAI(alpha 1.702, limit 7), biases");
    EXPECT_EQ(describe(Recipe{.activation = Activation::gelu, .fused_gate_up = true, .down_scale = true}),
              "GeGLU, fused gate/up, down scale");
    EXPECT_EQ(
        describe(Recipe{.activation = Activation::relu_squared, .gated = false, .up_bias = true, .down_bias = true}),
        "ReLU², biases");
    EXPECT_EQ(describe(Recipe{.activation = Activation::silu, .gate_bias = true, .up_bias = true}),
              "SwiGLU, gate and up bias");
    EXPECT_EQ(describe(Recipe{}), "unknown activation");
}

}  // namespace
}  // namespace kvasir
