// Architectures with shared experts, leading dense layers, or routers that are more than a softmax.
#include <algorithm>

#include "synth/builder.h"

namespace kvasir::synth {
namespace {

constexpr std::uint32_t kSigmoid = 2;  // LLAMA_EXPERT_GATING_FUNC_TYPE_SIGMOID

std::string blk(std::uint32_t layer, std::string_view name) {
    return Builder::block(layer, name);
}

std::uint32_t as_u32(std::uint64_t value) {
    return static_cast<std::uint32_t>(value);
}

// DeepSeek and GLM count shared experts, each as wide as a routed one.
std::uint32_t shared_count(const Builder& b) {
    return std::max<std::uint32_t>(1, as_u32(b.shared_ff() / b.spec().ff));
}

void qkv_biases(Builder& b, std::uint32_t layer) {
    const SynthSpec& s = b.spec();
    b.bias(blk(layer, "attn_q.bias"), {s.heads * s.head_dim});
    b.bias(blk(layer, "attn_k.bias"), {s.kv_heads * s.head_dim});
    b.bias(blk(layer, "attn_v.bias"), {s.kv_heads * s.head_dim});
}

// The shared expert has a gate of its own.
void build_qwen2moe(Builder& b) {
    const SynthSpec& s = b.spec();
    b.set("expert_shared_feed_forward_length", as_u32(b.shared_ff()));
    b.embeddings();
    for (std::uint32_t layer = 0; layer < s.layers; ++layer) {
        b.norm(blk(layer, "attn_norm.weight"), s.hidden);
        b.attention(layer, false);
        qkv_biases(b, layer);
        b.norm(blk(layer, "ffn_norm.weight"), s.hidden);
        b.router(layer);
        b.experts(layer);
        b.matrix_f32(blk(layer, "ffn_gate_inp_shexp.weight"), {s.hidden});
        b.shared_expert(layer, b.shared_ff());
    }
}

// The tail of a layer that DeepSeek, GLM and Step share.
void biased_moe(Builder& b, std::uint32_t layer, std::uint64_t shared_ff) {
    if (layer < b.spec().dense_layers) {
        b.dense_ffn(layer, b.dense_ff());
        return;
    }
    b.router(layer);
    b.selection_bias(layer);
    b.experts(layer);
    b.shared_expert(layer, shared_ff);
}

void biased_moe_keys(Builder& b) {
    b.set("leading_dense_block_count", b.spec().dense_layers);
    b.set("expert_shared_count", shared_count(b));
    b.set("expert_gating_func", kSigmoid);
    b.set("expert_weights_scale", 1.5F);
    b.set("expert_weights_norm", true);
}

// Multi-head latent attention: queries, and keys with values, pass through a narrow layer each.
struct Latent {
    std::uint64_t query;  // 0: none
    std::uint64_t key_value;
    std::uint64_t rope;   // of a head, rotated
    std::uint64_t plain;  // of a head, not rotated
};

// By its size, llama.cpp takes a model for one of the "lite" ones, whose queries do not pass through a narrow layer.
bool lite(const SynthSpec& s) {
    return s.layers == 26 || s.layers == 27 || (s.layers == 48 && s.vocab == 128256);
}

Latent latent_widths(const SynthSpec& s) {
    return {lite(s) ? 0 : std::max<std::uint64_t>(32, s.hidden / 4 / 32 * 32),
            std::max<std::uint64_t>(32, s.hidden / 8 / 32 * 32), s.head_dim / 4 * 2, s.head_dim};
}

void latent_queries(Builder& b, std::uint32_t layer, const Latent& latent) {
    const std::uint64_t heads = b.spec().heads * (latent.plain + latent.rope);
    if (latent.query == 0) {
        b.matrix(blk(layer, "attn_q.weight"), {b.spec().hidden, heads});
        return;
    }
    b.norm(blk(layer, "attn_q_a_norm.weight"), latent.query);
    b.matrix(blk(layer, "attn_q_a.weight"), {b.spec().hidden, latent.query});
    b.matrix(blk(layer, "attn_q_b.weight"), {latent.query, heads});
}

void latent_attention(Builder& b, std::uint32_t layer, const Latent& latent) {
    const SynthSpec& s = b.spec();
    latent_queries(b, layer, latent);
    b.norm(blk(layer, "attn_kv_a_norm.weight"), latent.key_value);
    b.matrix(blk(layer, "attn_kv_a_mqa.weight"), {s.hidden, latent.key_value + latent.rope});
    b.matrix(blk(layer, "attn_k_b.weight"), {latent.plain, latent.key_value, s.heads});
    b.matrix(blk(layer, "attn_v_b.weight"), {latent.key_value, s.head_dim, s.heads});
    b.matrix(blk(layer, "attn_output.weight"), {s.heads * s.head_dim, s.hidden});
}

void build_deepseek2(Builder& b) {
    const SynthSpec& s = b.spec();
    const Latent latent = latent_widths(s);
    b.set("attention.head_count_kv", std::uint32_t{1});
    if (latent.query > 0) b.set("attention.q_lora_rank", as_u32(latent.query));
    b.set("attention.kv_lora_rank", as_u32(latent.key_value));
    b.set("attention.key_length", as_u32(latent.key_value + latent.rope));
    b.set("attention.value_length", as_u32(latent.key_value));
    b.set("attention.key_length_mla", as_u32(latent.plain + latent.rope));
    b.set("attention.value_length_mla", as_u32(s.head_dim));
    b.set("rope.dimension_count", as_u32(latent.rope));
    biased_moe_keys(b);
    b.embeddings();
    for (std::uint32_t layer = 0; layer < b.block_count(); ++layer) {
        b.norm(blk(layer, "attn_norm.weight"), s.hidden);
        latent_attention(b, layer, latent);
        b.norm(blk(layer, "ffn_norm.weight"), s.hidden);
        biased_moe(b, layer, s.ff * shared_count(b));
        if (layer >= s.layers) b.mtp_head(layer);
    }
}

void build_glm4moe(Builder& b) {
    const SynthSpec& s = b.spec();
    b.set("rope.dimension_count", as_u32(s.head_dim / 4 * 2));
    biased_moe_keys(b);
    b.embeddings();
    for (std::uint32_t layer = 0; layer < b.block_count(); ++layer) {
        b.norm(blk(layer, "attn_norm.weight"), s.hidden);
        b.attention(layer, true);
        qkv_biases(b, layer);
        b.norm(blk(layer, "post_attention_norm.weight"), s.hidden);
        biased_moe(b, layer, s.ff * shared_count(b));
        if (layer >= s.layers) b.mtp_head(layer);
    }
}

// SwiGLU clamped after the SiLU ("swiglu_limited"), in the shared expert too; a gate per attention head.
void build_step35(Builder& b) {
    const SynthSpec& s = b.spec();
    const float clamp = s.clamp > 0 ? s.clamp : 7.0F;
    std::vector<std::uint32_t> window(s.layers);
    for (std::uint32_t layer = 0; layer < s.layers; ++layer)
        window[layer] = (layer + 1) % 2;
    b.set("attention.sliding_window", std::uint32_t{128});
    b.set("attention.sliding_window_pattern", window);
    b.set("rope.freq_base_swa", 10000.0F);
    b.set("swiglu_clamp_exp", std::vector<float>(s.layers, clamp));
    b.set("swiglu_clamp_shexp", std::vector<float>(s.layers, 2 * clamp));
    b.set("expert_shared_feed_forward_length", as_u32(b.shared_ff()));
    biased_moe_keys(b);
    b.embeddings();
    for (std::uint32_t layer = 0; layer < s.layers; ++layer) {
        b.norm(blk(layer, "attn_norm.weight"), s.hidden);
        b.attention(layer, true);
        b.matrix_f32(blk(layer, "attn_gate.weight"), {s.hidden, s.heads});
        b.norm(blk(layer, "ffn_norm.weight"), s.hidden);
        biased_moe(b, layer, b.shared_ff());
    }
}

// The router's weight is applied before the expert; experts in every n-th layer, a shared one beside them. llama.cpp
// needs one layer of its attention without rotation, the fourth.
void build_llama4(Builder& b) {
    const SynthSpec& s = b.spec();
    b.set("interleave_moe_layer_step", s.moe_every);
    b.embeddings();
    for (std::uint32_t layer = 0; layer < s.layers; ++layer) {
        b.norm(blk(layer, "attn_norm.weight"), s.hidden);
        b.attention(layer, false);
        b.norm(blk(layer, "ffn_norm.weight"), s.hidden);
        if ((layer + 1) % s.moe_every != 0) {
            b.dense_ffn(layer, b.dense_ff());
            continue;
        }
        b.router(layer);
        b.experts(layer);
        b.shared_expert(layer, s.ff);
    }
}

}  // namespace

std::vector<Architecture> shared_architectures() {
    return {
        {"qwen2moe", {.square_attention = true}, build_qwen2moe},
        {"deepseek2", {.dense_layers = true, .fused_gate_up = true, .mtp = true, .groups = true}, build_deepseek2},
        {"glm4moe", {.dense_layers = true, .mtp = true, .groups = true}, build_glm4moe},
        {"step35", {.dense_layers = true, .clamp = true}, build_step35},
        {"llama4", {.moe_every = true, .fewest_layers = 4}, build_llama4},
    };
}

}  // namespace kvasir::synth
