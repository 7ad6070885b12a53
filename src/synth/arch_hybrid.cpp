// Architectures whose layers alternate between attention and a recurrent state.
#include <algorithm>

#include "synth/builder.h"

namespace kvasir::synth {
namespace {

constexpr std::uint32_t kConvolution = 4;

// Full attention in every fourth layer; in the last one of a model with fewer (llama.cpp needs one of either kind).
std::uint32_t full_attention_interval(const SynthSpec& spec) {
    return std::min<std::uint32_t>(4, spec.layers);
}

std::string blk(std::uint32_t layer, std::string_view name) {
    return Builder::block(layer, name);
}

std::uint32_t as_u32(std::uint64_t value) {
    return static_cast<std::uint32_t>(value);
}

// Gated DeltaNet: a matrix-valued state per head, decayed and corrected at every token.
void delta_net(Builder& b, std::uint32_t layer) {
    const SynthSpec& s = b.spec();
    const std::uint64_t keys = s.linear_key_heads * s.state_size;
    const std::uint64_t values = s.linear_value_heads * s.state_size;
    b.matrix(blk(layer, "attn_qkv.weight"), {s.hidden, 2 * keys + values});
    b.matrix(blk(layer, "attn_gate.weight"), {s.hidden, values});
    b.matrix_f32(blk(layer, "ssm_conv1d.weight"), {kConvolution, 2 * keys + values}, 2.0F);
    b.vector(blk(layer, "ssm_dt.bias"), {s.linear_value_heads}, {0.0F, 0.5F});
    b.vector(blk(layer, "ssm_a"), {s.linear_value_heads}, {-0.5F, 0.2F, true});
    b.matrix(blk(layer, "ssm_beta.weight"), {s.hidden, s.linear_value_heads});
    b.matrix(blk(layer, "ssm_alpha.weight"), {s.hidden, s.linear_value_heads});
    b.norm(blk(layer, "ssm_norm.weight"), s.state_size);
    b.matrix(blk(layer, "ssm_out.weight"), {values, s.hidden});
}

// Queries come with a gate for the attention's output, hence twice as wide.
void gated_attention(Builder& b, std::uint32_t layer) {
    const SynthSpec& s = b.spec();
    b.matrix(blk(layer, "attn_q.weight"), {s.hidden, 2 * s.head_dim * s.heads});
    b.matrix(blk(layer, "attn_k.weight"), {s.hidden, s.kv_heads * s.head_dim});
    b.matrix(blk(layer, "attn_v.weight"), {s.hidden, s.kv_heads * s.head_dim});
    b.matrix(blk(layer, "attn_output.weight"), {s.heads * s.head_dim, s.hidden});
    b.norm(blk(layer, "attn_q_norm.weight"), s.head_dim);
    b.norm(blk(layer, "attn_k_norm.weight"), s.head_dim);
}

// Of the rotated quarter of a head, a share each for time, height and width of images; text uses one position for all.
void qwen35_rope(Builder& b) {
    const std::uint32_t rotated = as_u32(b.spec().head_dim / 8 * 2);
    const std::uint32_t third = rotated / 6;
    b.set("rope.dimension_count", rotated);
    b.set("rope.dimension_sections", std::vector<std::uint32_t>{rotated / 2 - 2 * third, third, third, 0});
}

void build_qwen35moe(Builder& b) {
    const SynthSpec& s = b.spec();
    b.set("expert_shared_feed_forward_length", as_u32(b.shared_ff()));
    qwen35_rope(b);
    const std::uint32_t interval = full_attention_interval(s);
    b.set("full_attention_interval", interval);
    b.set("ssm.conv_kernel", kConvolution);
    b.set("ssm.inner_size", as_u32(s.linear_value_heads * s.state_size));
    b.set("ssm.state_size", as_u32(s.state_size));
    b.set("ssm.time_step_rank", s.linear_value_heads);
    b.set("ssm.group_count", s.linear_key_heads);
    b.embeddings();
    for (std::uint32_t layer = 0; layer < b.block_count(); ++layer) {
        b.norm(blk(layer, "attn_norm.weight"), s.hidden);
        const bool recurrent = layer < s.layers && (layer + 1) % interval != 0;
        recurrent ? delta_net(b, layer) : gated_attention(b, layer);
        b.norm(blk(layer, "post_attention_norm.weight"), s.hidden);
        b.router(layer);
        b.experts(layer);
        b.matrix_f32(blk(layer, "ffn_gate_inp_shexp.weight"), {s.hidden});
        b.shared_expert(layer, b.shared_ff());
        if (layer >= s.layers) b.mtp_head(layer);
    }
}

struct Mamba {
    std::uint64_t inner;
    std::uint32_t heads;
    std::uint32_t groups;

    std::uint64_t convolved(std::uint64_t state) const { return inner + 2 * state * groups; }
};

void mamba2(Builder& b, std::uint32_t layer, const Mamba& mamba) {
    const SynthSpec& s = b.spec();
    const std::uint64_t convolved = mamba.convolved(s.state_size);
    b.matrix(blk(layer, "ssm_in.weight"), {s.hidden, mamba.inner + convolved + mamba.heads});
    b.matrix_f32(blk(layer, "ssm_conv1d.weight"), {kConvolution, convolved}, 2.0F);
    b.bias(blk(layer, "ssm_conv1d.bias"), {convolved});
    b.vector(blk(layer, "ssm_dt.bias"), {mamba.heads}, {0.0F, 0.5F});
    b.vector(blk(layer, "ssm_a"), {1, mamba.heads}, {-0.5F, 0.2F, true});
    b.vector(blk(layer, "ssm_d"), {1, mamba.heads}, {1.0F, 0.1F});
    b.vector(blk(layer, "ssm_norm.weight"), {mamba.inner / mamba.groups, mamba.groups}, {1.0F, 0.1F});
    b.matrix(blk(layer, "ssm_out.weight"), {mamba.inner, s.hidden});
}

enum class NemotronBlock { mamba, experts, attention };

// Mamba, experts, attention, experts, and so on: a block is one of the three.
NemotronBlock nemotron_block(std::uint32_t layer) {
    if (layer % 2 == 1) return NemotronBlock::experts;
    return layer % 4 == 0 ? NemotronBlock::mamba : NemotronBlock::attention;
}

void nemotron_keys(Builder& b, const Mamba& mamba) {
    const SynthSpec& s = b.spec();
    std::vector<std::uint32_t> widths(s.layers, 0);
    std::vector<std::uint32_t> kv_heads(s.layers, 0);
    for (std::uint32_t layer = 0; layer < s.layers; ++layer) {
        if (nemotron_block(layer) == NemotronBlock::experts) widths[layer] = as_u32(s.ff);
        if (nemotron_block(layer) == NemotronBlock::attention) kv_heads[layer] = s.kv_heads;
    }
    b.set("feed_forward_length", widths);
    b.set("attention.head_count_kv", kv_heads);
    b.set("attention.layer_norm_epsilon", 1e-5F);
    b.set("expert_shared_feed_forward_length", as_u32(b.shared_ff()));
    b.set("expert_shared_count", std::uint32_t{1});
    b.set("expert_weights_norm", true);
    b.set("expert_weights_scale", 1.5F);
    b.set("ssm.conv_kernel", kConvolution);
    b.set("ssm.inner_size", as_u32(mamba.inner));
    b.set("ssm.state_size", as_u32(s.state_size));
    b.set("ssm.time_step_rank", mamba.heads);
    b.set("ssm.group_count", mamba.groups);
}

// Experts without a gate: ReLU squared.
void build_nemotron(Builder& b) {
    const SynthSpec& s = b.spec();
    const Mamba mamba{2 * s.hidden, 4, 2};
    nemotron_keys(b, mamba);
    b.embeddings();
    for (std::uint32_t layer = 0; layer < s.layers; ++layer) {
        b.norm(blk(layer, "attn_norm.weight"), s.hidden);
        switch (nemotron_block(layer)) {
            case NemotronBlock::mamba:
                mamba2(b, layer, mamba);
                break;
            case NemotronBlock::attention:
                b.attention(layer, false);
                break;
            case NemotronBlock::experts:
                b.router(layer);
                b.selection_bias(layer);
                b.experts(layer, false);
                b.shared_expert(layer, b.shared_ff(), false);
                break;
        }
    }
}

}  // namespace

std::vector<Architecture> hybrid_architectures() {
    return {
        {"qwen35moe",
         {.fused_gate_up = true, .expert_scales = true, .mtp = true, .delta_net = true, .fewest_layers = 2},
         build_qwen35moe},
        {"nemotron_h_moe", {.expert_scales = true, .fewest_layers = 3}, build_nemotron},
    };
}

}  // namespace kvasir::synth
