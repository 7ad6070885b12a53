// Architectures with a softmax router and experts, no more: the smallest way to most expert recipes.
#include <cmath>

#include "synth/builder.h"

namespace kvasir::synth {
namespace {

std::string blk(std::uint32_t layer, std::string_view name) {
    return Builder::block(layer, name);
}

// The layer most of them share: attention and experts, each behind an RMS norm.
void plain_layer(Builder& b, std::uint32_t layer, bool qk_norm) {
    b.norm(blk(layer, "attn_norm.weight"), b.spec().hidden);
    b.attention(layer, qk_norm);
    b.norm(blk(layer, "ffn_norm.weight"), b.spec().hidden);
    b.router(layer);
    b.experts(layer);
}

std::uint32_t as_u32(std::uint64_t value) {
    return static_cast<std::uint32_t>(value);
}

// SwiGLU, no shared expert.
void build_qwen3moe(Builder& b) {
    b.embeddings();
    for (std::uint32_t layer = 0; layer < b.spec().layers; ++layer)
        plain_layer(b, layer, true);
}

// Mixtral and its like: experts as wide as feed_forward_length says. Without experts: the dense Llama.
void build_llama(Builder& b) {
    const SynthSpec& s = b.spec();
    b.set("feed_forward_length", as_u32(s.experts > 0 ? s.ff : b.dense_ff()));
    b.embeddings();
    for (std::uint32_t layer = 0; layer < s.layers; ++layer) {
        if (s.experts > 0) {
            plain_layer(b, layer, false);
            continue;
        }
        b.norm(blk(layer, "attn_norm.weight"), s.hidden);
        b.attention(layer, false);
        b.norm(blk(layer, "ffn_norm.weight"), s.hidden);
        b.dense_ffn(layer, b.dense_ff());
    }
}

// SwiGLU-OAI with biases everywhere, attention sinks, a sliding window in every second layer.
void build_gpt_oss(Builder& b) {
    const SynthSpec& s = b.spec();
    b.set("attention.sliding_window", std::uint32_t{128});
    b.embeddings();
    for (std::uint32_t layer = 0; layer < s.layers; ++layer) {
        b.norm(blk(layer, "attn_norm.weight"), s.hidden);
        b.attention(layer, false);
        b.bias(blk(layer, "attn_q.bias"), {s.heads * s.head_dim});
        b.bias(blk(layer, "attn_k.bias"), {s.kv_heads * s.head_dim});
        b.bias(blk(layer, "attn_v.bias"), {s.kv_heads * s.head_dim});
        b.bias(blk(layer, "attn_output.bias"), {s.hidden});
        b.bias(blk(layer, "attn_sinks.weight"), {s.heads});
        b.norm(blk(layer, "post_attention_norm.weight"), s.hidden);
        b.router(layer);
        b.bias(blk(layer, "ffn_gate_inp.bias"), {s.experts});
        b.experts(layer);
        b.expert_biases(layer);
    }
}

// Like qwen3moe, but the weights of the chosen experts are not made to sum to one, and the norms of queries and keys
// span all heads.
void build_olmoe(Builder& b) {
    b.set("feed_forward_length", as_u32(b.spec().ff));
    b.embeddings();
    for (std::uint32_t layer = 0; layer < b.spec().layers; ++layer) {
        plain_layer(b, layer, false);
        b.norm(blk(layer, "attn_q_norm.weight"), b.spec().hidden);
        b.norm(blk(layer, "attn_k_norm.weight"), b.spec().hidden);
    }
}

void build_granitemoe(Builder& b) {
    const SynthSpec& s = b.spec();
    b.set("feed_forward_length", as_u32(s.ff));
    b.set("logit_scale", 1.0F);
    b.set("residual_scale", 0.7F);
    b.set("embedding_scale", 1.5F);
    b.set("attention.scale", 1.0F / std::sqrt(static_cast<float>(s.head_dim)));
    if (s.shared_ff > 0) b.set("expert_shared_feed_forward_length", as_u32(s.shared_ff));
    b.embeddings();
    for (std::uint32_t layer = 0; layer < s.layers; ++layer) {
        plain_layer(b, layer, false);
        if (s.shared_ff > 0) b.shared_expert(layer, s.shared_ff);
    }
}

// GeGLU; norms after attention and experts too. llama.cpp multiplies attention scores by attention.output_scale.
void build_grok(Builder& b) {
    const SynthSpec& s = b.spec();
    b.set("feed_forward_length", as_u32(s.ff));
    b.set("embedding_scale", 1.0F);
    b.set("logit_scale", 1.0F);
    b.set("attention.output_scale", 1.0F / std::sqrt(static_cast<float>(s.head_dim)));
    b.embeddings();
    for (std::uint32_t layer = 0; layer < s.layers; ++layer) {
        plain_layer(b, layer, false);
        b.norm(blk(layer, "attn_output_norm.weight"), s.hidden);
        b.norm(blk(layer, "layer_output_norm.weight"), s.hidden);
    }
}

// ReGLU; the router reads the layer's input, before attention.
void build_smallthinker(Builder& b) {
    b.set("expert_gating_func", std::uint32_t{1});
    b.embeddings();
    for (std::uint32_t layer = 0; layer < b.spec().layers; ++layer)
        plain_layer(b, layer, false);
}

// SwiGLU clamped by ggml_swiglu_clamp; a sliding window in every second layer, and rotation only there.
void build_maple(Builder& b) {
    const SynthSpec& s = b.spec();
    std::vector<std::uint32_t> window(s.layers);
    for (std::uint32_t layer = 0; layer < s.layers; ++layer)
        window[layer] = (layer + 1) % 2;
    b.set("attention.sliding_window", std::uint32_t{128});
    b.set("attention.sliding_window_pattern", window);
    b.set("swiglu_clamp_exp", std::vector<float>(s.layers, s.clamp > 0 ? s.clamp : 7.0F));
    b.embeddings();
    for (std::uint32_t layer = 0; layer < s.layers; ++layer)
        plain_layer(b, layer, true);
}

}  // namespace

std::vector<Architecture> plain_architectures() {
    return {
        {"qwen3moe", {.expert_scales = true}, build_qwen3moe},
        {"llama", {.dense = true, .expert_scales = true}, build_llama},
        {"gpt-oss", {}, build_gpt_oss},
        {"olmoe", {.square_attention = true, .equal_heads = true}, build_olmoe},
        {"granitemoe", {}, build_granitemoe},
        {"grok", {.square_attention = true}, build_grok},
        {"smallthinker", {}, build_smallthinker},
        {"maple", {.clamp = true}, build_maple},
    };
}

}  // namespace kvasir::synth
