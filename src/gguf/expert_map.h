// Where a model's routed experts are: for every layer that has any, its tensors by role and its recipe. An expert is
// the outermost dimension of each of them, so one expert's share of one tensor, a slab, is one contiguous byte range.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/gguf_file.h"
#include "gguf/recipe.h"

namespace kvasir {

// Values are wire and manifest format: never renumber.
enum class Role : std::uint8_t {
    gate = 0,          // blk.N.ffn_gate_exps.weight        [hidden, ff, experts]
    up = 1,            // blk.N.ffn_up_exps.weight          [hidden, ff, experts]
    down = 2,          // blk.N.ffn_down_exps.weight        [ff, hidden, experts]
    gate_up = 3,       // blk.N.ffn_gate_up_exps.weight     [hidden, 2 ff, experts]
    gate_bias = 4,     // blk.N.ffn_gate_exps.bias          [ff, experts]
    up_bias = 5,       // blk.N.ffn_up_exps.bias            [ff, experts]
    down_bias = 6,     // blk.N.ffn_down_exps.bias          [hidden, experts]
    gate_up_bias = 7,  // blk.N.ffn_gate_up_exps.bias       [2 ff, experts]
    gate_scale = 8,    // blk.N.ffn_gate_exps.scale         [experts]
    up_scale = 9,      // blk.N.ffn_up_exps.scale           [experts] (of the fused tensor where it is fused)
    down_scale = 10,   // blk.N.ffn_down_exps.scale         [experts]
};
inline constexpr int kRoleCount = 11;
const char* role_name(Role role);

// What a tensor name says. `piece` is 0 in models; in slices the further pieces of a layer are numbered from 1
// ("blk.3.ffn_up_exps.weight.1").
struct ExpertTensorName {
    std::uint32_t layer = 0;
    Role role = Role::gate;
    std::uint32_t piece = 0;
    bool operator==(const ExpertTensorName&) const = default;
};
// None for every other tensor. Layer and piece are at most 1,000,000.
std::optional<ExpertTensorName> parse_expert_tensor_name(std::string_view name);
// The name of a role's tensor in its layer, as llama.cpp has it.
std::string expert_tensor_name(std::uint32_t layer, Role role);

struct ExpertTensor {
    Role role = Role::gate;
    TensorInfo info;
    std::uint64_t slab_bytes = 0;  // info.bytes / experts, exactly

    // The byte range of one expert in file info.file.
    std::uint64_t slab_offset(std::uint32_t expert) const { return info.offset + expert * slab_bytes; }
};

struct ExpertLayer {
    std::uint32_t layer = 0;  // the N of blk.N
    std::uint32_t experts = 0;
    std::uint32_t first_expert = 0;  // > 0 only in a slice: the global id of local expert 0
    std::uint64_t hidden = 0;        // columns in; out rows are as wide
    std::uint64_t ff = 0;
    Recipe recipe;  // activation `unknown` where the header does not tell
    std::vector<ExpertTensor> tensors;

    const ExpertTensor* find(Role role) const;
    std::uint64_t expert_bytes() const;  // all slabs of one expert
};

struct ExpertMap {
    std::string architecture;
    std::string name;                // general.name, or the file's name
    std::uint32_t block_count = 0;   // all layers, MTP blocks among them
    std::uint32_t experts_used = 0;  // top-k
    std::uint64_t hidden = 0;
    std::vector<ExpertLayer> layers;  // ascending; empty for a dense model
    std::uint64_t model_bytes = 0;    // all tensors
    std::uint64_t expert_bytes = 0;   // the routed experts' share of them

    const ExpertLayer* find(std::uint32_t layer) const;
    std::uint64_t expert_count() const;  // sum over layers
};

// The activation that llama.cpp computes an architecture's routed experts with; `unknown` where it is none of ours or
// the architecture is none of llama.cpp's. Clamped SwiGLU comes from per-layer keys: map_experts() looks at them.
Activation architecture_activation(std::string_view architecture);

// Errors, by tensor name: bytes that do not divide by the expert count, shapes that contradict each other, a layer with
// down but no up, an expert dimension that differs between tensors of one layer.
Result<ExpertMap> map_experts(const GgufModel& model);

}  // namespace kvasir
