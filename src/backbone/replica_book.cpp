#include "backbone/replica_book.h"

#include <algorithm>
#include <utility>

namespace kvasir {

ReplicaBook::ReplicaBook(std::span<const Entry> entries) {
    std::unordered_map<std::uint32_t, std::vector<Claim>> claims;
    for (const Entry& entry : entries) {
        for (const Piece& piece : entry.pieces) {
            if (piece.count == 0) continue;
            std::uint64_t first = piece.first;
            claims[piece.layer].push_back({first, first + piece.count, {entry.worker, entry.epoch}});
        }
    }
    for (auto& [layer, of_layer] : claims)
        layers_.emplace(layer, make_layer(std::move(of_layer)));
}

ReplicaBook::Layer ReplicaBook::make_layer(std::vector<Claim> claims) {
    std::vector<std::uint64_t> borders;
    borders.reserve(claims.size() * 2);
    for (const Claim& claim : claims) {
        borders.push_back(claim.first);
        borders.push_back(claim.end);
    }
    std::sort(borders.begin(), borders.end());
    borders.erase(std::unique(borders.begin(), borders.end()), borders.end());
    std::sort(claims.begin(), claims.end(), [](const Claim& a, const Claim& b) { return a.first < b.first; });

    Layer layer;
    std::vector<Claim> active;  // few: a worker's pieces rarely overlap
    auto next = claims.begin();
    for (std::uint64_t border : borders) {
        std::erase_if(active, [border](const Claim& claim) { return claim.end <= border; });
        for (; next != claims.end() && next->first == border; ++next)
            active.push_back(*next);
        std::size_t begin = layer.holders.size();
        for (const Claim& claim : active)
            layer.holders.push_back(claim.holder);
        sort_unique(layer.holders, begin);
        layer.segments.push_back(
            {border, static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(layer.holders.size())});
    }
    for (const Claim& claim : claims)
        layer.anywhere.push_back(claim.holder);
    sort_unique(layer.anywhere, 0);
    return layer;
}

void ReplicaBook::sort_unique(std::vector<Holder>& holders, std::size_t from) {
    auto begin = holders.begin() + static_cast<std::ptrdiff_t>(from);
    std::sort(begin, holders.end());
    holders.erase(std::unique(begin, holders.end()), holders.end());
}

std::span<const ReplicaBook::Holder> ReplicaBook::holders(std::uint32_t layer, std::uint32_t expert) const {
    auto found = layers_.find(layer);
    if (found == layers_.end()) return {};
    const Layer& of_layer = found->second;
    auto after = std::upper_bound(of_layer.segments.begin(), of_layer.segments.end(), expert,
                                  [](std::uint64_t value, const Segment& segment) { return value < segment.first; });
    if (after == of_layer.segments.begin()) return {};
    const Segment& segment = *(after - 1);
    return std::span(of_layer.holders).subspan(segment.begin, segment.end - segment.begin);
}

std::span<const ReplicaBook::Holder> ReplicaBook::holders(std::uint32_t layer) const {
    auto found = layers_.find(layer);
    if (found == layers_.end()) return {};
    return found->second.anywhere;
}

}  // namespace kvasir
