#include "synth/builder.h"

#include <fmt/format.h>

#include <cmath>

namespace kvasir::synth {
namespace {

// Block-quantised rows must be whole blocks; a dense matrix that cannot be quantised is kept as F16, as llama.cpp's
// own quantiser does with some.
ggml_type fitting(ggml_type type, std::uint64_t row) {
    return row % static_cast<std::uint64_t>(ggml_blck_size(type)) == 0 ? type : GGML_TYPE_F16;
}

float deviation_for(std::uint64_t inputs, float gain) {
    return gain / std::sqrt(static_cast<float>(inputs));
}

// The experts' share of the residual stream is made large, so that a wrong expert is seen in the logits.
constexpr float kDownGain = 3.0F;
constexpr float kRouterGain = 2.0F;
constexpr float kOutputGain = 3.0F;

}  // namespace

std::string Builder::key(std::string_view suffix) const {
    return fmt::format("{}.{}", spec_.architecture, suffix);
}

void Builder::set(std::string_view suffix, std::uint32_t value) {
    gguf_set_val_u32(plan_.metadata.get(), key(suffix).c_str(), value);
}
void Builder::set(std::string_view suffix, float value) {
    gguf_set_val_f32(plan_.metadata.get(), key(suffix).c_str(), value);
}
void Builder::set(std::string_view suffix, bool value) {
    gguf_set_val_bool(plan_.metadata.get(), key(suffix).c_str(), value);
}
void Builder::set(std::string_view suffix, const std::vector<std::uint32_t>& values) {
    gguf_set_arr_data(plan_.metadata.get(), key(suffix).c_str(), GGUF_TYPE_UINT32, values.data(), values.size());
}
void Builder::set(std::string_view suffix, const std::vector<float>& values) {
    gguf_set_arr_data(plan_.metadata.get(), key(suffix).c_str(), GGUF_TYPE_FLOAT32, values.data(), values.size());
}

std::string Builder::block(std::uint32_t layer, std::string_view name) {
    return fmt::format("blk.{}.{}", layer, name);
}

void Builder::add(const std::string& name, ggml_type type, std::initializer_list<std::uint64_t> shape, Fill fill) {
    TensorPlan tensor{name, type, {}, fill};
    for (std::uint64_t length : shape)
        tensor.shape.push_back(static_cast<std::int64_t>(length));
    plan_.tensors.push_back(std::move(tensor));
}

void Builder::matrix(const std::string& name, std::initializer_list<std::uint64_t> shape, float gain) {
    const std::uint64_t inputs = *shape.begin();
    add(name, fitting(types_.dense, inputs), shape, {0.0F, deviation_for(inputs, gain)});
}

void Builder::matrix_f32(const std::string& name, std::initializer_list<std::uint64_t> shape, float gain) {
    add(name, GGML_TYPE_F32, shape, {0.0F, deviation_for(*shape.begin(), gain)});
}

void Builder::vector(const std::string& name, std::initializer_list<std::uint64_t> shape, Fill fill) {
    add(name, GGML_TYPE_F32, shape, fill);
}

void Builder::embeddings() {
    const std::uint64_t hidden = spec_.hidden;
    add("token_embd.weight", fitting(types_.embedding, hidden), {hidden, spec_.vocab}, {});
    norm("output_norm.weight", hidden);
    add("output.weight", fitting(types_.output, hidden), {hidden, spec_.vocab},
        {0.0F, deviation_for(hidden, kOutputGain)});
}

void Builder::attention(std::uint32_t layer, bool qk_norm) {
    const std::uint64_t hidden = spec_.hidden;
    matrix(block(layer, "attn_q.weight"), {hidden, spec_.heads * spec_.head_dim});
    matrix(block(layer, "attn_k.weight"), {hidden, spec_.kv_heads * spec_.head_dim});
    matrix(block(layer, "attn_v.weight"), {hidden, spec_.kv_heads * spec_.head_dim});
    matrix(block(layer, "attn_output.weight"), {spec_.heads * spec_.head_dim, hidden});
    if (!qk_norm) return;
    norm(block(layer, "attn_q_norm.weight"), spec_.head_dim);
    norm(block(layer, "attn_k_norm.weight"), spec_.head_dim);
}

void Builder::router(std::uint32_t layer) {
    matrix_f32(block(layer, "ffn_gate_inp.weight"), {spec_.hidden, spec_.experts}, kRouterGain);
}

ggml_type Builder::down_type(std::uint32_t layer) const {
    return layer % spec_.down_every == 0 ? types_.down : types_.expert;
}

void Builder::experts(std::uint32_t layer, bool gated) {
    const std::uint64_t hidden = spec_.hidden;
    const std::uint64_t ff = spec_.ff;
    const std::uint64_t count = spec_.experts;
    const Fill in{0.0F, deviation_for(hidden, 1.0F)};
    const bool fused = gated && spec_.fused_gate_up;
    if (fused) {
        add(block(layer, "ffn_gate_up_exps.weight"), types_.expert, {hidden, 2 * ff, count}, in);
    } else {
        if (gated) add(block(layer, "ffn_gate_exps.weight"), types_.expert, {hidden, ff, count}, in);
        add(block(layer, "ffn_up_exps.weight"), types_.expert, {hidden, ff, count}, in);
    }
    add(block(layer, "ffn_down_exps.weight"), down_type(layer), {ff, hidden, count},
        {0.0F, deviation_for(ff, kDownGain)});
    if (!spec_.expert_scales) return;
    const Fill scale{1.0F, 0.3F};
    if (gated && !fused) vector(block(layer, "ffn_gate_exps.scale"), {count}, scale);
    if (!fused) vector(block(layer, "ffn_up_exps.scale"), {count}, scale);
    vector(block(layer, "ffn_down_exps.scale"), {count}, scale);
}

void Builder::expert_biases(std::uint32_t layer) {
    bias(block(layer, "ffn_gate_exps.bias"), {spec_.ff, spec_.experts});
    bias(block(layer, "ffn_up_exps.bias"), {spec_.ff, spec_.experts});
    bias(block(layer, "ffn_down_exps.bias"), {spec_.hidden, spec_.experts});
}

void Builder::selection_bias(std::uint32_t layer) {
    vector(block(layer, "exp_probs_b.bias"), {spec_.experts}, {0.0F, 0.1F});
}

void Builder::mtp_head(std::uint32_t layer) {
    matrix(block(layer, "nextn.eh_proj.weight"), {2 * spec_.hidden, spec_.hidden});
    norm(block(layer, "nextn.enorm.weight"), spec_.hidden);
    norm(block(layer, "nextn.hnorm.weight"), spec_.hidden);
    norm(block(layer, "nextn.shared_head_norm.weight"), spec_.hidden);
}

void Builder::shared_expert(std::uint32_t layer, std::uint64_t ff, bool gated) {
    if (gated) matrix(block(layer, "ffn_gate_shexp.weight"), {spec_.hidden, ff});
    matrix(block(layer, "ffn_up_shexp.weight"), {spec_.hidden, ff});
    matrix(block(layer, "ffn_down_shexp.weight"), {ff, spec_.hidden});
}

void Builder::dense_ffn(std::uint32_t layer, std::uint64_t ff, bool gated) {
    if (gated) matrix(block(layer, "ffn_gate.weight"), {spec_.hidden, ff});
    matrix(block(layer, "ffn_up.weight"), {spec_.hidden, ff});
    matrix(block(layer, "ffn_down.weight"), {ff, spec_.hidden});
}

}  // namespace kvasir::synth
