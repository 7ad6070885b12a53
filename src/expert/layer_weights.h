// The experts of one layer (or piece) in memory, and whether they can be computed with.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "base/bytes.h"
#include "base/result.h"
#include "expert/arithmetic.h"
#include "expert/row_encoding.h"
#include "gguf/expert_map.h"
#include "gguf/recipe.h"

namespace kvasir {

// One expert tensor in memory, experts outermost; not owned.
struct WeightView {
    std::uint32_t type = 0;  // enum ggml_type
    std::array<std::uint64_t, 4> shape = {1, 1, 1, 1};
    const std::byte* data = nullptr;
};

// Not owned.
struct LayerWeights {
    std::uint64_t hidden = 0;
    std::uint64_t ff = 0;
    std::uint32_t experts = 0;
    std::array<std::optional<WeightView>, kRoleCount> tensors;

    const std::optional<WeightView>& operator[](Role role) const { return tensors[static_cast<std::size_t>(role)]; }
};

// Views of a mapped layer; `files` holds the bytes of each of the model's files.
LayerWeights view_weights(const ExpertLayer& layer, std::span<const ByteSpan> files);

// Whether `recipe` can be computed with these tensors; the error names what is missing, unexpected or unknown.
Status check_recipe(Arithmetic arithmetic, const Recipe& recipe, const LayerWeights& weights);

// How the layer's rows travel to whoever computes it; the weights must have passed check_recipe.
RowEncoding input_encoding(Arithmetic arithmetic, const LayerWeights& weights);
// … and its outputs back.
RowEncoding output_encoding(Arithmetic arithmetic);

}  // namespace kvasir
