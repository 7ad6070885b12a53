#include "expert/recipes.h"

namespace kvasir::test {

std::vector<NamedRecipe> all_recipes() {
    constexpr Activation kOai = Activation::swiglu_oai;
    return {
        {"swiglu", {.activation = Activation::silu}},
        {"swiglu_fused", {.activation = Activation::silu, .fused_gate_up = true}},
        {"swiglu_scales", {.activation = Activation::silu, .gate_scale = true, .up_scale = true, .down_scale = true}},
        {"swiglu_fused_scale_bias",
         {.activation = Activation::silu,
          .fused_gate_up = true,
          .up_bias = true,
          .down_bias = true,
          .up_scale = true,
          .down_scale = true}},
        {"oai_biases",
         {.activation = kOai, .gate_bias = true, .up_bias = true, .down_bias = true, .alpha = 1.702F, .limit = 7.0F}},
        {"oai_tight", {.activation = kOai, .alpha = 1.5F, .limit = 0.25F}},
        {"clamped", {.activation = Activation::swiglu_clamp, .limit = 0.5F}},
        {"limited", {.activation = Activation::swiglu_limited, .limit = 0.25F}},
        {"geglu", {.activation = Activation::gelu}},
        {"geglu_fused", {.activation = Activation::gelu, .fused_gate_up = true}},
        {"reglu", {.activation = Activation::relu}},
        {"silu_alone", {.activation = Activation::silu, .gated = false}},
        {"gelu_alone", {.activation = Activation::gelu, .gated = false}},
        {"relu_alone_bias", {.activation = Activation::relu, .gated = false, .up_bias = true}},
        {"relu_squared", {.activation = Activation::relu_squared, .gated = false, .down_scale = true}},
    };
}

}  // namespace kvasir::test
