// Builds the routed-expert part of a layer as llama.cpp's build_moe_ffn does, in every variant, on tensors of our own.
#pragma once

#include <ggml-backend.h>
#include <ggml.h>

#include <cstdint>
#include <memory>

#include "gguf/recipe.h"

namespace kvasir {

struct MoeShape {
    std::int64_t hidden = 64;
    std::int64_t ff = 32;
    std::int64_t experts = 8;
    std::int64_t slots = 2;
    std::int64_t tokens = 3;
    std::uint32_t layer = 5;
    bool weight_before = false;
    ggml_type type = GGML_TYPE_F32;
};

struct FreeContext {
    void operator()(ggml_context* context) const { ggml_free(context); }
};
using ContextPtr = std::unique_ptr<ggml_context, FreeContext>;

// A context for tensors and graphs without data.
ContextPtr make_context();

// The tensors of one layer; null where the recipe has none.
struct MoeWeights {
    ggml_tensor* gate = nullptr;
    ggml_tensor* up = nullptr;
    ggml_tensor* down = nullptr;
    ggml_tensor* gate_up = nullptr;
    ggml_tensor* gate_bias = nullptr;
    ggml_tensor* up_bias = nullptr;
    ggml_tensor* down_bias = nullptr;
    ggml_tensor* gate_scale = nullptr;
    ggml_tensor* up_scale = nullptr;
    ggml_tensor* down_scale = nullptr;
};
MoeWeights make_weights(ggml_context* context, const Recipe& recipe, const MoeShape& shape);

// What build_moe makes, by the names of its parts.
struct MoeGraph {
    ggml_tensor* input = nullptr;    // f32 [hidden, tokens]
    ggml_tensor* ids = nullptr;      // i32 [slots, tokens], a strided view of `argsort`
    ggml_tensor* argsort = nullptr;  // i32 [experts, tokens]
    ggml_tensor* router = nullptr;   // f32 [1, slots, tokens]
    ggml_tensor* rows = nullptr;     // what the first projections read
    ggml_tensor* gate = nullptr;     // operands of the activation
    ggml_tensor* up = nullptr;
    ggml_tensor* gate_up = nullptr;   // the fused projection, before its views
    ggml_tensor* hidden = nullptr;    // the activation's result
    ggml_tensor* out = nullptr;       // the group's end
    ggml_tensor* weighted = nullptr;  // `out` times the router's weights (`out` itself where weighted before)
    ggml_cgraph* graph = nullptr;
};
MoeGraph build_moe(ggml_context* context, const Recipe& recipe, const MoeWeights& weights, const MoeShape& shape);

// Appends another layer to `graph` that reads `input`.
void append_moe(ggml_context* context, const Recipe& recipe, const MoeWeights& weights, const MoeShape& shape,
                MoeGraph& graph);

}  // namespace kvasir
