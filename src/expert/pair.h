// One selected (row, expert).
#pragma once

#include <cstdint>

namespace kvasir {

// Indices into a call's rows and into a layer's experts. Its memory layout is the wire's: two little-endian u32.
struct Pair {
    std::uint32_t row = 0;
    std::uint32_t expert = 0;
    bool operator==(const Pair&) const = default;
};
static_assert(sizeof(Pair) == 8);

}  // namespace kvasir
