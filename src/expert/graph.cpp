#include "expert/graph.h"

#include <cmath>

namespace kvasir {

namespace {

constexpr std::size_t kGraphNodes = 32;
constexpr std::size_t kTensors = 48;
constexpr std::size_t kAlignment = 64;

std::size_t padded(std::size_t bytes) {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

GraphBuilder::GraphBuilder()
    : memory_(kTensors * ggml_tensor_overhead() + ggml_graph_overhead_custom(kGraphNodes, false)),
      context_(ggml_init({memory_.size(), memory_.data(), true})) {}

ggml_tensor* GraphBuilder::matrix(const WeightView& view) {
    ggml_tensor* tensor =
        ggml_new_tensor_3d(context_.get(), static_cast<ggml_type>(view.type), static_cast<std::int64_t>(view.shape[0]),
                           static_cast<std::int64_t>(view.shape[1]), static_cast<std::int64_t>(view.shape[2]));
    // ggml only reads weights; its tensors have no const.
    tensor->data = const_cast<std::byte*>(view.data);
    return tensor;
}

ggml_tensor* GraphBuilder::floats(const void* data, std::int64_t ne0, std::int64_t ne1, std::int64_t ne2) {
    ggml_tensor* tensor = ggml_new_tensor_3d(context_.get(), GGML_TYPE_F32, ne0, ne1, ne2);
    tensor->data = const_cast<void*>(data);
    return tensor;
}

ggml_tensor* GraphBuilder::multiply(const LayerWeights& weights, Role role, ggml_tensor* input) {
    return ggml_mul_mat_id(context_.get(), matrix(*weights[role]), input, ids_);
}

// llama.cpp looks the scale up with a chain of views and GET_ROWS; the product is the same one multiplication.
ggml_tensor* GraphBuilder::scaled(const LayerWeights& weights, Role role, ggml_tensor* input) {
    const auto index = static_cast<std::size_t>(role) - static_cast<std::size_t>(Role::gate_scale);
    const auto* table = reinterpret_cast<const float*>(weights[role]->data);
    std::vector<float>& gathered = scales_[index];
    gathered.clear();
    for (std::int64_t pair = 0; pair < batch_->pairs(); ++pair)
        gathered.push_back(table[batch_->ids[pair]]);
    return ggml_mul(context_.get(), input, floats(gathered.data(), 1, batch_->slots, batch_->tokens));
}

ggml_tensor* GraphBuilder::biased(const LayerWeights& weights, Role role, ggml_tensor* input) {
    const WeightView& view = *weights[role];
    return ggml_add_id(
        context_.get(), input,
        floats(view.data, static_cast<std::int64_t>(view.shape[0]), static_cast<std::int64_t>(view.shape[1]), 1), ids_);
}

// `gate` is `up` itself where there is no gate.
ggml_tensor* GraphBuilder::activated(const Recipe& recipe, ggml_tensor* gate, ggml_tensor* up) {
    ggml_context* ctx = context_.get();
    switch (recipe.activation) {
        case Activation::silu:
            return recipe.gated ? ggml_swiglu_split(ctx, gate, up) : ggml_silu(ctx, gate);
        case Activation::gelu:
            return recipe.gated ? ggml_geglu_split(ctx, gate, up) : ggml_gelu(ctx, gate);
        case Activation::relu:
            return recipe.gated ? ggml_reglu_split(ctx, gate, up) : ggml_relu(ctx, gate);
        case Activation::relu_squared:
            return ggml_sqr(ctx, ggml_relu(ctx, gate));
        case Activation::swiglu_oai:
            return ggml_swiglu_oai(ctx, gate, up, recipe.alpha, recipe.limit);
        case Activation::swiglu_clamp:
            return ggml_swiglu_clamp(ctx, gate, up, recipe.limit);
        case Activation::swiglu_limited: {
            ggml_tensor* limited = ggml_clamp(ctx, ggml_silu(ctx, gate), -INFINITY, recipe.limit);
            return ggml_mul(ctx, limited, ggml_clamp(ctx, up, -recipe.limit, recipe.limit));
        }
        case Activation::unknown:
            break;
    }
    return nullptr;
}

void GraphBuilder::place(ggml_cgraph* graph, ByteVector& scratch) {
    std::size_t needed = kAlignment;
    for (int node = 0; node < ggml_graph_n_nodes(graph); ++node) {
        const ggml_tensor* tensor = ggml_graph_node(graph, node);
        if (tensor->data == nullptr && tensor->view_src == nullptr) needed += padded(ggml_nbytes(tensor));
    }
    if (scratch.size() < needed) scratch.resize(needed);
    const auto start = reinterpret_cast<std::uintptr_t>(scratch.data());
    std::byte* next = scratch.data() + (padded(start) - start);
    for (int node = 0; node < ggml_graph_n_nodes(graph); ++node) {
        ggml_tensor* tensor = ggml_graph_node(graph, node);
        if (tensor->data != nullptr) continue;
        if (tensor->view_src != nullptr) {
            tensor->data = static_cast<std::byte*>(tensor->view_src->data) + tensor->view_offs;
            continue;
        }
        tensor->data = next;
        next += padded(ggml_nbytes(tensor));
    }
}

ggml_cgraph* GraphBuilder::build(const LayerWeights& weights, const Recipe& recipe, const Batch& batch,
                                 ByteVector& scratch) {
    ggml_context* ctx = context_.get();
    ggml_reset(ctx);
    batch_ = &batch;
    ids_ = ggml_new_tensor_2d(ctx, GGML_TYPE_I32, batch.slots, batch.tokens);
    ids_->data = const_cast<std::int32_t*>(batch.ids);
    ggml_tensor* input = floats(batch.rows, static_cast<std::int64_t>(weights.hidden), 1, batch.tokens);

    ggml_tensor* up = multiply(weights, recipe.fused_gate_up ? Role::gate_up : Role::up, input);
    if (recipe.up_scale) up = scaled(weights, Role::up_scale, up);
    if (recipe.up_bias) up = biased(weights, recipe.fused_gate_up ? Role::gate_up_bias : Role::up_bias, up);
    ggml_tensor* gate = up;
    if (recipe.fused_gate_up) {
        const auto ff = static_cast<std::int64_t>(weights.ff);
        ggml_tensor* both = up;
        gate = ggml_view_3d(ctx, both, ff, both->ne[1], both->ne[2], both->nb[1], both->nb[2], 0);
        up = ggml_view_3d(ctx, both, ff, both->ne[1], both->ne[2], both->nb[1], both->nb[2],
                          static_cast<std::size_t>(ff) * both->nb[0]);
    } else if (recipe.gated) {
        gate = multiply(weights, Role::gate, input);
        if (recipe.gate_scale) gate = scaled(weights, Role::gate_scale, gate);
        if (recipe.gate_bias) gate = biased(weights, Role::gate_bias, gate);
    }
    ggml_tensor* result = multiply(weights, Role::down, activated(recipe, gate, up));
    if (recipe.down_scale) result = scaled(weights, Role::down_scale, result);
    if (recipe.down_bias) result = biased(weights, Role::down_bias, result);
    result->data = batch.out;

    ggml_cgraph* graph = ggml_new_graph_custom(ctx, kGraphNodes, false);
    ggml_build_forward_expand(graph, result);
    place(graph, scratch);
    batch_ = nullptr;
    return graph;
}

}  // namespace kvasir
