// The matrices of a layer's experts, as an engine that walks through them itself sees them.
#pragma once

#include <ggml.h>

#include <cstdint>
#include <optional>
#include <span>

#include "expert/layer_weights.h"

namespace kvasir {

// One matrix of every expert, with what is added to its products. Owns nothing.
struct Projection {
    ggml_type type = GGML_TYPE_F32;
    std::size_t outputs = 0;
    std::size_t columns = 0;
    std::size_t skip = 0;    // outputs of the tensor's experts before ours (up, where gate and up are one tensor)
    std::size_t stride = 0;  // outputs of one expert in the tensor
    const std::byte* data = nullptr;
    const float* scales = nullptr;  // [experts]; may be null
    const float* biases = nullptr;  // [experts][stride]; may be null

    // [outputs] rows of weights.
    const std::byte* weights(std::uint32_t expert) const {
        return data + (expert * stride + skip) * ggml_row_size(type, static_cast<std::int64_t>(columns));
    }
    const float* scale(std::uint32_t expert) const { return scales != nullptr ? scales + expert : nullptr; }
    // Of outputs [begin, end); empty where there is none.
    std::span<const float> bias(std::uint32_t expert, std::size_t begin, std::size_t end) const {
        if (biases == nullptr) return {};
        return {biases + expert * stride + skip + begin, end - begin};
    }
};

struct Projections {
    std::optional<Projection> gate;
    Projection up;
    Projection down;
};

// The weights must have passed check_recipe.
Projections projections_of(const LayerWeights& weights);

}  // namespace kvasir
