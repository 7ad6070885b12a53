// Architectures with ordinary attention and a softmax router: the smallest way to each expert recipe.
#include "synth/builder.h"

namespace kvasir::synth {
namespace {

std::string blk(std::uint32_t layer, std::string_view name) {
    return Builder::block(layer, name);
}

// SwiGLU, no shared expert.
void build_qwen3moe(Builder& b) {
    b.embeddings();
    for (std::uint32_t layer = 0; layer < b.spec().layers; ++layer) {
        b.norm(blk(layer, "attn_norm.weight"), b.spec().hidden);
        b.attention(layer, true);
        b.norm(blk(layer, "ffn_norm.weight"), b.spec().hidden);
        b.router(layer);
        b.experts(layer);
    }
}

// Mixtral and its like: architecture "llama" with experts of the width feed_forward_length.
void build_llama(Builder& b) {
    b.set("feed_forward_length", static_cast<std::uint32_t>(b.spec().ff));
    b.embeddings();
    for (std::uint32_t layer = 0; layer < b.spec().layers; ++layer) {
        b.norm(blk(layer, "attn_norm.weight"), b.spec().hidden);
        b.attention(layer, false);
        b.norm(blk(layer, "ffn_norm.weight"), b.spec().hidden);
        b.router(layer);
        b.experts(layer);
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

}  // namespace

std::vector<Architecture> plain_architectures() {
    return {
        {"qwen3moe", {.expert_scales = true}, build_qwen3moe},
        {"llama", {.expert_scales = true}, build_llama},
        {"gpt-oss", {}, build_gpt_oss},
    };
}

}  // namespace kvasir::synth
