#include "expert/reference.h"

#include <ggml-cpu.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>

namespace kvasir::test {

namespace {

std::vector<double> multiply(const std::vector<float>& matrix, std::uint32_t expert, std::uint64_t columns,
                             std::uint64_t rows, std::span<const double> input) {
    std::vector<double> output(rows);
    const float* weights = matrix.data() + expert * columns * rows;
    for (std::uint64_t r = 0; r < rows; ++r) {
        for (std::uint64_t c = 0; c < columns; ++c)
            output[r] += static_cast<double>(weights[r * columns + c]) * input[c];
    }
    return output;
}

void scale_and_bias(std::vector<double>& numbers, const RandomLayer& layer, std::uint32_t expert, bool scale,
                    Role scale_role, bool bias, Role bias_role) {
    for (std::size_t i = 0; i < numbers.size(); ++i) {
        if (scale) numbers[i] *= layer.values(scale_role)[expert];
        if (bias) numbers[i] += layer.values(bias_role)[expert * numbers.size() + i];
    }
}

double silu(double x) {
    return x / (1 + std::exp(-x));
}
double gelu(double x) {
    return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * x * (1 + 0.044715 * x * x)));
}

double activate(const Recipe& recipe, double gate, double up) {
    const double factor = recipe.gated ? up : 1.0;
    const double limit = recipe.limit;
    switch (recipe.activation) {
        case Activation::silu:
            return silu(gate) * factor;
        case Activation::gelu:
            return gelu(gate) * factor;
        case Activation::relu:
            return std::max(gate, 0.0) * factor;
        case Activation::relu_squared:
            return std::pow(std::max(gate, 0.0), 2);
        case Activation::swiglu_oai: {
            const double g = std::min(gate, limit);
            return g / (1 + std::exp(-recipe.alpha * g)) * (std::clamp(up, -limit, limit) + 1);
        }
        case Activation::swiglu_clamp:
            return silu(std::min(gate, limit)) * std::clamp(up, -limit, limit);
        case Activation::swiglu_limited:
            return std::min(silu(gate), limit) * std::clamp(up, -limit, limit);
        case Activation::unknown:
            break;
    }
    return NAN;
}

double root_mean_square(std::span<const double> numbers) {
    const double sum =
        std::transform_reduce(numbers.begin(), numbers.end(), 0.0, std::plus<>(), [](double x) { return x * x; });
    return std::sqrt(sum / static_cast<double>(numbers.size()));
}

// One graph of llama.cpp's.
class LlamaGraph {
  public:
    LlamaGraph(const RandomLayer& layer, std::span<const float> rows, std::span<const Pair> pairs);
    std::vector<float> compute();

  private:
    ggml_tensor* weight(Role role);
    ggml_tensor* mm_id(Role role, ggml_tensor* input, bool scale, Role scale_role);
    ggml_tensor* ffn(ggml_tensor* input);
    ggml_tensor* act(ggml_tensor* cur, ggml_tensor* up);

    const RandomLayer& layer_;
    std::size_t outputs_;
    std::unique_ptr<ggml_context, decltype(&ggml_free)> context_;
    ggml_tensor* ids_;
    ggml_tensor* input_;
};

LlamaGraph::LlamaGraph(const RandomLayer& layer, std::span<const float> rows, std::span<const Pair> pairs)
    : layer_(layer),
      outputs_(pairs.size() * layer.weights().hidden),
      context_(ggml_init({std::size_t{256} << 20, nullptr, false}), &ggml_free) {
    const auto hidden = static_cast<std::int64_t>(layer.weights().hidden);
    const auto tokens = static_cast<std::int64_t>(rows.size()) / hidden;
    const std::int64_t slots = static_cast<std::int64_t>(pairs.size()) / tokens;
    // In llama.cpp ids are a view of the sorted experts of each token: strided.
    const std::int64_t experts = layer.weights().experts;
    ggml_tensor* sorted = ggml_new_tensor_2d(context_.get(), GGML_TYPE_I32, experts, tokens);
    for (std::size_t i = 0; i < pairs.size(); ++i) {
        const std::size_t slot = i % static_cast<std::size_t>(slots);
        static_cast<std::int32_t*>(sorted->data)[pairs[i].row * experts + static_cast<std::int64_t>(slot)] =
            static_cast<std::int32_t>(pairs[i].expert);
    }
    ids_ = ggml_view_2d(context_.get(), sorted, slots, tokens, sorted->nb[1], 0);
    input_ = ggml_new_tensor_3d(context_.get(), GGML_TYPE_F32, hidden, 1, tokens);
    std::ranges::copy(rows, static_cast<float*>(input_->data));
}

ggml_tensor* LlamaGraph::weight(Role role) {
    const WeightView& view = *layer_.weights()[role];
    ggml_tensor* tensor =
        ggml_new_tensor_3d(context_.get(), static_cast<ggml_type>(view.type), static_cast<std::int64_t>(view.shape[0]),
                           static_cast<std::int64_t>(view.shape[1]), static_cast<std::int64_t>(view.shape[2]));
    std::copy_n(view.data, ggml_nbytes(tensor), static_cast<std::byte*>(tensor->data));
    return tensor;
}

ggml_tensor* LlamaGraph::mm_id(Role role, ggml_tensor* input, bool scale, Role scale_role) {
    ggml_context* ctx0 = context_.get();
    ggml_tensor* res = ggml_mul_mat_id(ctx0, weight(role), input, ids_);
    if (!scale) return res;
    ggml_tensor* w_s = weight(scale_role);
    const std::int64_t n_expert = w_s->ne[0];
    ggml_tensor* s = ggml_reshape_3d(ctx0, w_s, 1, n_expert, 1);
    s = ggml_repeat_4d(ctx0, s, 1, n_expert, input->ne[2], 1);
    return ggml_mul(ctx0, res, ggml_get_rows(ctx0, s, ids_));
}

ggml_tensor* LlamaGraph::act(ggml_tensor* cur, ggml_tensor* up) {
    ggml_context* ctx0 = context_.get();
    const Recipe& recipe = layer_.recipe();
    switch (recipe.activation) {
        case Activation::silu:
            return recipe.gated ? ggml_swiglu_split(ctx0, cur, up) : ggml_silu(ctx0, cur);
        case Activation::gelu:
            return recipe.gated ? ggml_geglu_split(ctx0, cur, up) : ggml_gelu(ctx0, cur);
        case Activation::relu:
            return recipe.gated ? ggml_reglu_split(ctx0, cur, up) : ggml_relu(ctx0, cur);
        case Activation::relu_squared:
            return ggml_sqr(ctx0, ggml_relu(ctx0, cur));
        case Activation::swiglu_oai:
            return ggml_swiglu_oai(ctx0, cur, up, recipe.alpha, recipe.limit);
        case Activation::swiglu_clamp:
            return ggml_swiglu_clamp(ctx0, cur, up, recipe.limit);
        case Activation::swiglu_limited: {
            ggml_tensor* clamped = ggml_clamp(ctx0, up, -recipe.limit, recipe.limit);
            ggml_tensor* gate_act = ggml_clamp(ctx0, ggml_silu(ctx0, cur), -INFINITY, recipe.limit);
            return ggml_mul(ctx0, gate_act, clamped);
        }
        case Activation::unknown:
            break;
    }
    return nullptr;
}

ggml_tensor* LlamaGraph::ffn(ggml_tensor* input) {
    ggml_context* ctx0 = context_.get();
    const Recipe& recipe = layer_.recipe();
    ggml_tensor* cur = nullptr;
    ggml_tensor* up = nullptr;
    if (recipe.fused_gate_up) {
        ggml_tensor* gate_up = mm_id(Role::gate_up, input, recipe.up_scale, Role::up_scale);
        if (recipe.up_bias) gate_up = ggml_add_id(ctx0, gate_up, weight(Role::gate_up_bias), ids_);
        const std::int64_t n_ff = gate_up->ne[0] / 2;
        cur = ggml_view_3d(ctx0, gate_up, n_ff, gate_up->ne[1], gate_up->ne[2], gate_up->nb[1], gate_up->nb[2], 0);
        up = ggml_view_3d(ctx0, gate_up, n_ff, gate_up->ne[1], gate_up->ne[2], gate_up->nb[1], gate_up->nb[2],
                          static_cast<std::size_t>(n_ff) * gate_up->nb[0]);
    } else {
        up = mm_id(Role::up, input, recipe.up_scale, Role::up_scale);
        if (recipe.up_bias) up = ggml_add_id(ctx0, up, weight(Role::up_bias), ids_);
        cur = recipe.gated ? mm_id(Role::gate, input, recipe.gate_scale, Role::gate_scale) : up;
        if (recipe.gate_bias) cur = ggml_add_id(ctx0, cur, weight(Role::gate_bias), ids_);
    }
    ggml_tensor* experts = mm_id(Role::down, act(cur, up), recipe.down_scale, Role::down_scale);
    if (recipe.down_bias) experts = ggml_add_id(ctx0, experts, weight(Role::down_bias), ids_);
    return experts;
}

std::vector<float> LlamaGraph::compute() {
    ggml_tensor* result = ffn(input_);
    ggml_cgraph* graph = ggml_new_graph(context_.get());
    ggml_build_forward_expand(graph, result);
    ggml_graph_compute_with_ctx(context_.get(), graph, 2);
    const auto* numbers = static_cast<const float*>(result->data);
    return {numbers, numbers + outputs_};
}

}  // namespace

std::vector<double> exact_output(const RandomLayer& layer, std::span<const float> row, std::uint32_t expert) {
    const Recipe& recipe = layer.recipe();
    const std::uint64_t hidden = layer.weights().hidden;
    const std::uint64_t ff = layer.weights().ff;
    const std::vector<double> input(row.begin(), row.end());
    std::vector<double> gate;
    std::vector<double> up;
    if (recipe.fused_gate_up) {
        std::vector<double> both = multiply(layer.values(Role::gate_up), expert, hidden, 2 * ff, input);
        scale_and_bias(both, layer, expert, recipe.up_scale, Role::up_scale, recipe.up_bias, Role::gate_up_bias);
        gate.assign(both.begin(), both.begin() + static_cast<std::ptrdiff_t>(ff));
        up.assign(both.begin() + static_cast<std::ptrdiff_t>(ff), both.end());
    } else {
        up = multiply(layer.values(Role::up), expert, hidden, ff, input);
        scale_and_bias(up, layer, expert, recipe.up_scale, Role::up_scale, recipe.up_bias, Role::up_bias);
        gate = recipe.gated ? multiply(layer.values(Role::gate), expert, hidden, ff, input) : up;
        if (recipe.gated) {
            scale_and_bias(gate, layer, expert, recipe.gate_scale, Role::gate_scale, recipe.gate_bias, Role::gate_bias);
        }
    }
    std::vector<double> inner(ff);
    for (std::uint64_t i = 0; i < ff; ++i)
        inner[i] = activate(recipe, gate[i], up[i]);
    std::vector<double> output = multiply(layer.values(Role::down), expert, ff, hidden, inner);
    scale_and_bias(output, layer, expert, recipe.down_scale, Role::down_scale, recipe.down_bias, Role::down_bias);
    return output;
}

void expect_close(const RandomLayer& layer, std::span<const float> rows, std::span<const Pair> pairs,
                  std::span<const float> out, double tolerance) {
    const std::size_t hidden = layer.weights().hidden;
    for (std::size_t i = 0; i < pairs.size(); ++i) {
        const std::vector<double> exact =
            exact_output(layer, rows.subspan(pairs[i].row * hidden, hidden), pairs[i].expert);
        const double allowed = tolerance * root_mean_square(exact);
        for (std::size_t c = 0; c < hidden; ++c)
            ASSERT_NEAR(out[i * hidden + c], exact[c], allowed) << "pair " << i;
    }
}

std::vector<float> llama_graph_output(const RandomLayer& layer, std::span<const float> rows,
                                      std::span<const Pair> pairs) {
    return LlamaGraph(layer, rows, pairs).compute();
}

}  // namespace kvasir::test
