// Weights as integers: section 3, type by type.
#pragma once

#include <array>
#include <cstdint>

#include "portable/types.h"

namespace kvasir::portable {

// The columns of one activation block: weight j is scale·weight[j] − minimum_scale·minimum[j].
struct Unit {
    std::array<std::int16_t, 256> weight;   // W, the first block_columns(form) of them
    std::array<std::int16_t, 256> minimum;  // N, set only for types with minimums
    float scale;                            // d
    float minimum_scale;                    // m, likewise
};

// Unit `index` of a row of weights, of a type whose form is not f32.
void decode_unit(ggml_type type, const std::byte* row, std::size_t index, Unit& unit);

// Column `index` of a row of F32, F16 or BF16.
float decode_column(ggml_type type, const std::byte* row, std::size_t index);

}  // namespace kvasir::portable
