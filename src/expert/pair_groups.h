// Pairs by expert, for engines that read an expert's weights once for all of its rows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "expert/pair.h"

namespace kvasir {

// The indices of `pairs`, those of one expert together, and these in their order.
inline void order_by_expert(std::span<const Pair> pairs, std::vector<std::uint32_t>& order) {
    order.resize(pairs.size());
    std::iota(order.begin(), order.end(), 0U);
    std::ranges::sort(order, {}, [&](std::uint32_t index) { return std::uint64_t{pairs[index].expert} << 32 | index; });
}

// The pairs of one expert: positions [first, first + count) of an order.
struct PairGroup {
    std::uint32_t expert = 0;
    std::size_t first = 0;
    std::size_t count = 0;
};

// The groups of an order, or of a part of one. `Group` is a PairGroup or derives from it.
template <class Group>
void find_groups(std::span<const std::uint32_t> order, std::span<const Pair> pairs, std::vector<Group>& groups) {
    groups.clear();
    for (std::size_t position = 0; position < order.size(); ++position) {
        const std::uint32_t expert = pairs[order[position]].expert;
        if (groups.empty() || groups.back().expert != expert) {
            groups.emplace_back();
            groups.back().expert = expert;
            groups.back().first = position;
        }
        ++groups.back().count;
    }
}
inline std::vector<PairGroup> groups_of(std::span<const std::uint32_t> order, std::span<const Pair> pairs) {
    std::vector<PairGroup> groups;
    find_groups(order, pairs, groups);
    return groups;
}

}  // namespace kvasir
