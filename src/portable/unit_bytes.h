// Units of 256 columns as signed bytes, for types whose weights come from tables (IQ1 to IQ3) or digits (TQ): what
// vectors multiply, many columns at a step, while units.h gives single integers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "portable/types.h"

namespace kvasir::portable {

// Weight j is scale · c(j >> 4) · q[j]. No q is −128, and none is above 63.
struct alignas(32) UnitBytes {
    std::int8_t q[256];
    std::int16_t c[16];  // those of even index, then those of odd index
    float scale;
};

// Whether a type has such units.
bool has_unit_bytes(ggml_type type);

// Of a type that has them. Thread-safe.
void decode_unit_bytes(ggml_type type, const std::byte* block, UnitBytes& unit);

}  // namespace kvasir::portable
