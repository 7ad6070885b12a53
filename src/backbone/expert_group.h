// Finds the routed-expert FFNs in a compute graph by structure: what llama.cpp's build_moe_ffn makes of gate, up,
// activation and down, with their scales and biases, read back as a Recipe. Never by tensor name.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "gguf/expert_map.h"
#include "gguf/recipe.h"

struct ggml_cgraph;
struct ggml_tensor;

namespace kvasir {

// One expert FFN of a graph; everything points into the graph. Replacing nodes [first, last] by "write `out`" is exact:
// no other node lies between them, and nothing outside reads what they compute but `out`.
struct ExpertGroup {
    Recipe recipe;
    std::array<const ggml_tensor*, kRoleCount> weights{};
    const ggml_tensor* rows = nullptr;  // f32 [hidden, 1 or slots, tokens]; `slots` where weighted before the FFN
    const ggml_tensor* ids = nullptr;   // i32 [slots, tokens]; strided
    ggml_tensor* out = nullptr;         // f32 [hidden, slots, tokens]; contiguous
    int first = 0;
    int last = 0;  // index of `out`

    const ggml_tensor* operator[](Role role) const { return weights[static_cast<std::size_t>(role)]; }
    std::uint32_t slots() const;
    std::uint32_t tokens() const;
    std::uint32_t experts() const;
    std::uint64_t hidden() const;
    // The row of `rows` (counted as [tokens][1 or slots]) that this token's slot reads.
    std::uint32_t row_of(std::uint32_t token, std::uint32_t slot) const;
};

// A MUL_MAT_ID that belongs to no group, and why.
struct UnmatchedOp {
    const ggml_tensor* node = nullptr;
    std::string reason;
};

struct GroupScan {
    std::vector<ExpertGroup> groups;     // in graph order
    std::vector<UnmatchedOp> unmatched;  // those that begin the explanation first: down projections
};

// Cheap: linear in the nodes of the graph (a scheduler's split: about ten). The graph must have use counts, as graphs
// made by ggml_build_forward_expand and views of them have.
GroupScan find_expert_groups(const ggml_cgraph& graph);

// The layer that all of the group's tensors name: "blk.<N>.ffn_<role>_exps.<suffix>", each by its role's own name.
// Anything else is ErrorKind::unsupported: its weights can't be looked up in a manifest.
Result<std::uint32_t> layer_number(const ExpertGroup& group);

// Whether `scale` is what llama.cpp makes of a per-expert scale: GET_ROWS(REPEAT(RESHAPE(scale)), ids).
bool is_expert_scale(const ggml_tensor* scale);

}  // namespace kvasir
