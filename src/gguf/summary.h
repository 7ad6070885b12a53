// What `kvasir inspect` shows: a model's header in a few numbers. Plain data, computed from the header alone.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gguf/expert_map.h"
#include "gguf/gguf_file.h"
#include "gguf/piece.h"

namespace kvasir {

// Layers that are alike in everything but their number.
struct LayerGroup {
    std::vector<Range> layers;
    std::uint64_t layer_count = 0;  // in a slice a layer of two pieces counts twice
    ExpertLayer example;            // the first of them
    std::uint64_t experts() const { return layer_count * example.experts; }
};

struct SlabSize {
    std::uint64_t bytes = 0;    // of one expert, all its tensors
    std::uint64_t experts = 0;  // that are this large
};

// All tensors of one name (their layer left out: "ffn_up_exps.weight") and type.
struct TypeCount {
    std::string tensor;
    std::uint32_t type = 0;
    std::uint64_t tensors = 0;
    std::uint64_t bytes = 0;
    bool routed = false;  // belongs to the routed experts
};

struct Summary {
    std::vector<LayerGroup> groups;      // by their first layer
    std::vector<SlabSize> expert_sizes;  // ascending
    std::vector<TypeCount> types;        // the largest first
};

Summary summarize(const GgufModel& model, std::span<const ExpertLayer> layers);

// What fits into `bytes` of memory: whole experts, at least (the largest ones) and at most (the smallest ones).
struct BudgetFit {
    std::uint64_t experts_at_least = 0;
    std::uint64_t experts_at_most = 0;
    std::uint64_t bytes_at_most = 0;  // the most weight bytes that fill the budget as whole experts
    std::uint64_t workers = 0;        // with that budget each: enough to hold every expert once; 0 if none fits
};
BudgetFit fit_budget(const Summary& summary, std::uint64_t bytes);

}  // namespace kvasir
