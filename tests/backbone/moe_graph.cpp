#include "backbone/moe_graph.h"

#include <cmath>
#include <string>

namespace kvasir {
namespace {

ggml_tensor* named(ggml_tensor* tensor, const MoeShape& shape, const char* name) {
    ggml_set_name(tensor, ("blk." + std::to_string(shape.layer) + "." + name).c_str());
    return tensor;
}

// build_lora_mm_id and what follows it.
ggml_tensor* project(ggml_context* context, ggml_tensor* weight, ggml_tensor* scale, ggml_tensor* bias,
                     ggml_tensor* input, const MoeGraph& graph, const MoeShape& shape) {
    ggml_tensor* result = ggml_mul_mat_id(context, weight, input, graph.ids);
    if (scale != nullptr) {
        ggml_tensor* each = ggml_reshape_3d(context, scale, 1, shape.experts, 1);
        each = ggml_repeat_4d(context, each, 1, shape.experts, shape.tokens, 1);
        result = ggml_mul(context, result, ggml_get_rows(context, each, graph.ids));
    }
    if (bias != nullptr) result = ggml_add_id(context, result, bias, graph.ids);
    return result;
}

ggml_tensor* activate(ggml_context* context, const Recipe& recipe, ggml_tensor* gate, ggml_tensor* up) {
    switch (recipe.activation) {
        case Activation::silu:
            return recipe.gated ? ggml_swiglu_split(context, gate, up) : ggml_silu(context, up);
        case Activation::gelu:
            return recipe.gated ? ggml_geglu_split(context, gate, up) : ggml_gelu(context, up);
        case Activation::relu:
            return recipe.gated ? ggml_reglu_split(context, gate, up) : ggml_relu(context, up);
        case Activation::relu_squared:
            return ggml_sqr(context, ggml_relu(context, up));
        case Activation::swiglu_oai:
            return ggml_swiglu_oai(context, gate, up, recipe.alpha, recipe.limit);
        case Activation::swiglu_clamp:
            return ggml_swiglu_clamp(context, gate, up, recipe.limit);
        case Activation::swiglu_limited: {
            up = ggml_clamp(context, up, -recipe.limit, recipe.limit);
            gate = ggml_clamp(context, ggml_silu(context, gate), -INFINITY, recipe.limit);
            return ggml_mul(context, gate, up);
        }
        case Activation::unknown:
            break;
    }
    return nullptr;
}

void project_inputs(ggml_context* context, const Recipe& recipe, const MoeWeights& weights, const MoeShape& shape,
                    MoeGraph& graph) {
    if (!recipe.fused_gate_up) {
        graph.up = project(context, weights.up, weights.up_scale, weights.up_bias, graph.rows, graph, shape);
        if (recipe.gated) {
            graph.gate =
                project(context, weights.gate, weights.gate_scale, weights.gate_bias, graph.rows, graph, shape);
        }
        return;
    }
    ggml_tensor* both = project(context, weights.gate_up, weights.up_scale, weights.up_bias, graph.rows, graph, shape);
    std::int64_t ff = shape.ff;
    graph.gate = ggml_view_3d(context, both, ff, both->ne[1], both->ne[2], both->nb[1], both->nb[2], 0);
    graph.up = ggml_view_3d(context, both, ff, both->ne[1], both->ne[2], both->nb[1], both->nb[2],
                            static_cast<std::size_t>(ff) * both->nb[0]);
    graph.gate_up = both;
}

}  // namespace

ContextPtr make_context() {
    ggml_init_params parameters{};
    parameters.mem_size = 512 * ggml_tensor_overhead() + ggml_graph_overhead_custom(512, false);
    parameters.no_alloc = true;
    return ContextPtr(ggml_init(parameters));
}

MoeWeights make_weights(ggml_context* context, const Recipe& recipe, const MoeShape& shape) {
    auto matrix = [&](std::int64_t columns, std::int64_t rows, const char* name) {
        return named(ggml_new_tensor_3d(context, shape.type, columns, rows, shape.experts), shape, name);
    };
    auto bias = [&](std::int64_t columns, const char* name) {
        return named(ggml_new_tensor_2d(context, GGML_TYPE_F32, columns, shape.experts), shape, name);
    };
    auto scale = [&](const char* name) {
        return named(ggml_new_tensor_1d(context, GGML_TYPE_F32, shape.experts), shape, name);
    };
    MoeWeights weights;
    bool fused = recipe.fused_gate_up;
    if (fused) weights.gate_up = matrix(shape.hidden, 2 * shape.ff, "ffn_gate_up_exps.weight");
    if (!fused && recipe.gated) weights.gate = matrix(shape.hidden, shape.ff, "ffn_gate_exps.weight");
    if (!fused) weights.up = matrix(shape.hidden, shape.ff, "ffn_up_exps.weight");
    weights.down = matrix(shape.ff, shape.hidden, "ffn_down_exps.weight");
    if (recipe.gate_bias) weights.gate_bias = bias(shape.ff, "ffn_gate_exps.bias");
    if (recipe.up_bias) {
        weights.up_bias = bias(fused ? 2 * shape.ff : shape.ff, fused ? "ffn_gate_up_exps.bias" : "ffn_up_exps.bias");
    }
    if (recipe.down_bias) weights.down_bias = bias(shape.hidden, "ffn_down_exps.bias");
    if (recipe.gate_scale) weights.gate_scale = scale("ffn_gate_exps.scale");
    if (recipe.up_scale) weights.up_scale = scale(fused ? "ffn_gate_up_exps.scale" : "ffn_up_exps.scale");
    if (recipe.down_scale) weights.down_scale = scale("ffn_down_exps.scale");
    return weights;
}

void append_moe(ggml_context* context, const Recipe& recipe, const MoeWeights& weights, const MoeShape& shape,
                MoeGraph& graph) {
    graph.rows = ggml_reshape_3d(context, graph.input, shape.hidden, 1, shape.tokens);
    if (shape.weight_before) {
        ggml_tensor* repeated = ggml_repeat_4d(context, graph.rows, shape.hidden, shape.slots, shape.tokens, 1);
        graph.rows = ggml_mul(context, repeated, graph.router);
    }
    project_inputs(context, recipe, weights, shape, graph);
    graph.hidden = activate(context, recipe, graph.gate, graph.up);
    graph.out = project(context, weights.down, weights.down_scale, weights.down_bias, graph.hidden, graph, shape);
    graph.weighted = shape.weight_before ? graph.out : ggml_mul(context, graph.out, graph.router);
    ggml_build_forward_expand(graph.graph, graph.weighted);
}

MoeGraph build_moe(ggml_context* context, const Recipe& recipe, const MoeWeights& weights, const MoeShape& shape) {
    MoeGraph graph;
    graph.graph = ggml_new_graph_custom(context, 256, false);
    graph.input = ggml_new_tensor_2d(context, GGML_TYPE_F32, shape.hidden, shape.tokens);
    graph.argsort = ggml_new_tensor_2d(context, GGML_TYPE_I32, shape.experts, shape.tokens);
    graph.router = ggml_new_tensor_3d(context, GGML_TYPE_F32, 1, shape.slots, shape.tokens);
    for (ggml_tensor* input : {graph.input, graph.argsort, graph.router})
        ggml_set_input(input);
    graph.ids = ggml_view_2d(context, graph.argsort, shape.slots, shape.tokens, graph.argsort->nb[1], 0);
    append_moe(context, recipe, weights, shape, graph);
    return graph;
}

}  // namespace kvasir
