// A piece: what a worker holds and a slice file is made of, a contiguous range of experts of one layer.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "gguf/expert_map.h"

namespace kvasir {

struct Piece {
    std::uint32_t layer = 0;
    std::uint32_t first = 0;  // global expert id
    std::uint32_t count = 0;

    bool contains(std::uint32_t expert) const { return expert >= first && expert - first < count; }
    auto operator<=>(const Piece&) const = default;  // NOLINT(modernize-use-nullptr): clang-tidy 14 sees a 0
};

struct Range {
    std::uint32_t first = 0;
    std::uint32_t last = 0;                          // inclusive
    auto operator<=>(const Range&) const = default;  // NOLINT(modernize-use-nullptr): likewise
};

// "0-3,7" → {0,3},{7,7}. Sorted and merged. Refuses, saying why: nothing, letters, "5-1", numbers over 1,000,000.
// `what` names the flag in the message.
Result<std::vector<Range>> parse_ranges(std::string_view text, std::string_view what);

// The pieces of layers × experts. A layer without routed experts or an expert that does not exist is refused by name.
Result<std::vector<Piece>> select_pieces(const ExpertMap& map, std::span<const Range> layers,
                                         std::span<const Range> experts);

// Sorted by layer and first expert; touching and overlapping pieces merged.
std::vector<Piece> normalized(std::vector<Piece> pieces);

// "0-3,7"
std::string describe(std::span<const Range> ranges);

// "layers 0-3: experts 0-63; layer 7: experts 0-31,64-127"
std::string describe(std::span<const Piece> pieces);

}  // namespace kvasir
