#include "portable/grids.h"

#include <ggml.h>

#include <array>
#include <vector>

#include "portable/numbers.h"

namespace kvasir::portable {
namespace {

constexpr std::uint16_t kOne = 0x3C00;  // f16
constexpr std::uint16_t kFour = 0x4400;
constexpr std::uint16_t kEight = 0x4800;

// A block whose first `width` columns are one entry of the grid, positive and with the smallest scale.
struct Probe {
    ggml_type type;
    std::size_t entries;
    std::size_t width;
    std::size_t scale_at;  // of the block's f16
    std::uint16_t scale;   // makes the smallest scale 1 (IQ1: 8)
    std::size_t low_at;    // the index's low byte,
    std::size_t high_at;   // and where its other bits go
};

constexpr std::array<Probe, 6> kProbes = {{
    {GGML_TYPE_IQ2_XXS, 256, 8, 0, kEight, 2, 0},
    {GGML_TYPE_IQ2_XS, 512, 8, 0, kEight, 2, 3},
    {GGML_TYPE_IQ2_S, 1024, 8, 0, kEight, 2, 66},
    {GGML_TYPE_IQ3_XXS, 256, 4, 0, kFour, 2, 0},
    {GGML_TYPE_IQ3_S, 512, 4, 0, kOne, 2, 66},
    {GGML_TYPE_IQ1_S, 2048, 8, 0, kEight, 2, 34},
}};

std::vector<std::int8_t> read_grid(const Probe& probe) {
    std::vector<std::int8_t> values;
    std::array<std::byte, 128> block;
    std::array<float, 256> columns;
    for (std::size_t entry = 0; entry < probe.entries; ++entry) {
        block.fill(std::byte{0});
        store(block.data() + probe.scale_at, probe.scale);
        block[probe.low_at] = static_cast<std::byte>(entry & 255);
        if (probe.high_at != 0) block[probe.high_at] = static_cast<std::byte>(entry >> 8);
        ggml_get_type_traits(probe.type)->to_float(block.data(), columns.data(), 256);
        for (std::size_t k = 0; k < probe.width; ++k) {
            const float value = probe.type == GGML_TYPE_IQ1_S ? (columns[k] - 1.0F) / 8.0F : columns[k];
            values.push_back(static_cast<std::int8_t>(value));
        }
    }
    return values;
}

}  // namespace

Grid grid_of(GridName name) {
    static const auto grids = [] {
        std::array<std::vector<std::int8_t>, kProbes.size()> all;
        for (std::size_t i = 0; i < all.size(); ++i)
            all[i] = read_grid(kProbes[i]);
        return all;
    }();
    const auto index = static_cast<std::size_t>(name);
    return {grids[index].data(), kProbes[index].entries, kProbes[index].width};
}

}  // namespace kvasir::portable
