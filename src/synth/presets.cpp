#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "synth/synth.h"

namespace kvasir {
namespace {

struct Preset {
    const char* description;
    SynthSpec spec;
};

// Tiny models of one to four MB: every expert recipe, and every kind of block around it.
std::vector<Preset> plain_presets() {
    return {
        {"SwiGLU; Q4_K with Q6_K down",
         {.name = "tiny-qwen3moe",
          .architecture = "qwen3moe",
          .layers = 3,
          .hidden = 256,
          .ff = 256,
          .type = "Q4_K",
          .down_type = "Q6_K"}},
        {"SwiGLU with a scale per expert; Q8_0",
         {.name = "tiny-qwen3moe-scales", .architecture = "qwen3moe", .expert_scales = true}},
        {"Mixtral: SwiGLU; Q4_0", {.name = "tiny-mixtral", .architecture = "llama", .layers = 3, .type = "Q4_0"}},
        {"SwiGLU; F32 throughout",
         {.name = "tiny-mixtral-f32", .architecture = "llama", .ff = 64, .type = "F32", .dense_type = "F32"}},
        {"SwiGLU-OAI with biases; MXFP4",
         {.name = "tiny-gpt-oss", .architecture = "gpt-oss", .layers = 4, .ff = 128, .type = "MXFP4"}},
        {"SwiGLU, weights that do not sum to one; F16",
         {.name = "tiny-olmoe", .architecture = "olmoe", .kv_heads = 4, .type = "F16"}},
        {"SwiGLU, a shared expert; BF16",
         {.name = "tiny-granitemoe", .architecture = "granitemoe", .shared_ff = 64, .type = "BF16"}},
        {"GeGLU; Q5_1", {.name = "tiny-grok", .architecture = "grok", .type = "Q5_1"}},
        {"ReGLU; Q8_0", {.name = "tiny-smallthinker", .architecture = "smallthinker"}},
        {"SwiGLU clamped by ggml_swiglu_clamp; IQ4_NL",
         {.name = "tiny-maple", .architecture = "maple", .type = "IQ4_NL", .clamp = 0.75F}},
        {"Llama without experts: nothing to shard; Q8_0",
         {.name = "tiny-dense", .architecture = "llama", .experts = 0, .dense_ff = 256}},
    };
}

std::vector<Preset> shared_presets() {
    return {
        {"SwiGLU, a gated shared expert; Q8_0",
         {.name = "tiny-qwen2moe", .architecture = "qwen2moe", .shared_ff = 160}},
        {"SwiGLU, latent attention, expert groups, a dense first layer; Q5_0",
         {.name = "tiny-deepseek2",
          .architecture = "deepseek2",
          .layers = 3,
          .dense_layers = 1,
          .experts = 12,
          .used = 3,
          .groups = 3,
          .groups_used = 2,
          .dense_ff = 256,
          .type = "Q5_0"}},
        {"SwiGLU, fused gate and up; Q8_0",
         {.name = "tiny-deepseek2-fused",
          .architecture = "deepseek2",
          .layers = 3,
          .dense_layers = 1,
          .fused_gate_up = true}},
        {"SwiGLU, selection bias, a dense first layer, an MTP block; Q8_0",
         {.name = "tiny-glm4moe", .architecture = "glm4moe", .layers = 3, .mtp_layers = 1, .dense_layers = 1}},
        {"SwiGLU limited after the SiLU, a dense first layer; Q8_0",
         {.name = "tiny-step35", .architecture = "step35", .layers = 3, .dense_layers = 1, .clamp = 0.5F}},
        {"SwiGLU, the router's weight before the expert, every second layer dense; Q4_1",
         {.name = "tiny-llama4",
          .architecture = "llama4",
          .layers = 4,
          .moe_every = 2,
          .used = 1,
          .dense_ff = 160,
          .type = "Q4_1"}},
    };
}

std::vector<Preset> hybrid_presets() {
    return {
        {"SwiGLU, Gated DeltaNet; Q4_K with Q6_K down in every second layer",
         {.name = "tiny-qwen35moe",
          .architecture = "qwen35moe",
          .layers = 4,
          .hidden = 256,
          .ff = 256,
          .shared_ff = 128,
          .type = "Q4_K",
          .down_type = "Q6_K",
          .down_every = 2}},
        {"the same with an MTP block; Q8_0",
         {.name = "tiny-qwen35moe-mtp", .architecture = "qwen35moe", .layers = 4, .mtp_layers = 1}},
        {"the same with fused gate and up; Q8_0",
         {.name = "tiny-qwen35moe-fused", .architecture = "qwen35moe", .layers = 4, .fused_gate_up = true}},
        {"squared ReLU without a gate, Mamba; Q8_0",
         {.name = "tiny-nemotron-h-moe", .architecture = "nemotron_h_moe", .layers = 4}},
    };
}

// Qwen3.5-122B-A10B's geometry. The published Q4_K_M file keeps attention and shared experts in Q8_0.
SynthSpec qwen35_122b() {
    return {.name = "qwen3.5-122b",
            .architecture = "qwen35moe",
            .layers = 48,
            .mtp_layers = 1,
            .experts = 256,
            .used = 8,
            .hidden = 3072,
            .ff = 1024,
            .shared_ff = 1024,
            .heads = 32,
            .kv_heads = 2,
            .head_dim = 256,
            .linear_key_heads = 16,
            .linear_value_heads = 64,
            .state_size = 128,
            .vocab = 248320,
            .context = 262144,
            .type = "Q4_K",
            .dense_type = "BF16",
            .embedding_type = "Q8_0",
            .output_type = "Q8_0",
            .header_only = true};
}

SynthSpec qwen35_122b_q4_k_m() {
    SynthSpec spec = qwen35_122b();
    spec.name = "qwen3.5-122b-q4_k_m";
    spec.down_type = "Q6_K";
    spec.down_every = 2;
    spec.dense_type = "Q8_0";
    spec.embedding_type = "Q4_K";
    spec.output_type = "Q6_K";
    return spec;
}

SynthSpec qwen35_122b_2layers() {
    SynthSpec spec = qwen35_122b();
    spec.name = "qwen3.5-122b-2layers";
    spec.layers = 2;
    spec.mtp_layers = 0;
    spec.vocab = 4096;
    spec.context = 4096;
    spec.down_type = "Q6_K";
    spec.dense_type = "Q8_0";
    spec.embedding_type = "";
    spec.output_type = "";
    spec.header_only = false;
    return spec;
}

std::vector<Preset> big_presets() {
    return {
        {"header of Qwen3.5-122B-A10B, experts all Q4_K, the rest BF16", qwen35_122b()},
        {"header of Qwen3.5-122B-A10B in the Q4_K_M mix", qwen35_122b_q4_k_m()},
        {"two layers of it at full width, Q4_K with Q6_K down, 3.4 GB", qwen35_122b_2layers()},
    };
}

std::vector<Preset> presets() {
    std::vector<Preset> all;
    for (auto group : {plain_presets, shared_presets, hybrid_presets, big_presets}) {
        for (Preset& preset : group())
            all.push_back(std::move(preset));
    }
    return all;
}

}  // namespace

std::vector<std::string> preset_names() {
    std::vector<std::string> names;
    for (const Preset& preset : presets())
        names.push_back(preset.spec.name);
    return names;
}

std::string preset_description(std::string_view name) {
    for (const Preset& preset : presets()) {
        if (preset.spec.name == name) return preset.description;
    }
    return "";
}

Result<SynthSpec> preset(std::string_view name) {
    for (const Preset& preset : presets()) {
        if (preset.spec.name == name) return preset.spec;
    }
    return fail(ErrorKind::usage, "unknown preset '{}'; known are {}", name, fmt::join(preset_names(), ", "));
}

}  // namespace kvasir
