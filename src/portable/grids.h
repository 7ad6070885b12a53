// The tables of the IQ types (docs/portable-vectors/grids.json): small integers, several columns to an entry.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kvasir::portable {

enum class GridName { iq2xxs, iq2xs, iq2s, iq3xxs, iq3s, iq1 };

struct Grid {
    const std::int8_t* values = nullptr;  // [entries][width]
    std::size_t entries = 0;
    std::size_t width = 0;  // 8 or 4 columns

    int at(std::size_t entry, int column) const { return values[entry * width + static_cast<std::size_t>(column)]; }
};

// Read off ggml's dequantisers at the first call; valid for good. Thread-safe.
Grid grid_of(GridName name);

}  // namespace kvasir::portable
