// Which experts a node asks for: a pure function that workers call, and the simulation too. The hub does not choose.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "market/offer.h"
#include "market/rules.h"

namespace kvasir::market {

// One model's demand as one node sees it.
struct View {
    std::shared_ptr<const Offer> offer;
    // Per cell: what this node would be paid (held: what it would be paid if it came anew). 0: nothing, because another
    // node of its owner or at its site has it.
    std::vector<Rate> rates;
    // Per cell: bytes of weights a second that one replica more would have to read.
    std::vector<float> loads;
};

// What a node is ready to give.
struct Budget {
    std::uint64_t memory_bytes = 0;
    std::uint64_t disk_bytes = 0;
    std::uint64_t download_bytes_per_s = 0;
    Duration download_time{};            // longest wait before it serves
    std::uint64_t read_bytes_per_s = 0;  // measured: weights it multiplies a second
};

// A run of experts and the mean rate it was seen at.
struct Wish {
    Piece piece;
    Rate rate = 0;
    bool operator==(const Wish&) const = default;
};

// The pieces that pay best for what they cost: greedily what has the highest rate per share of room and of speed that
// it takes. It works in aligned groups of 2^k experts, 8 to 15 of which fill its room (of one expert, where there are
// no more than 15). New pieces are aligned blocks of 2^k groups, of the three widest widths that there is room for
// (narrower ones only where replicas are missing); each halving of the width takes 8 % off, and the range of a block
// that was taken in another layer counts 5 % more: wide ranges, and equal ones in several layers, make fewer peers per
// layer. `kept` is what the node holds or has on its disk: it needs no download and counts gain_percent more, so that
// only a gain above that moves a node. Blocks of equal worth: which of them comes first is drawn by `seed` (of the
// node's id), so that nodes that choose from one view at the same time choose apart.
// Sorted, disjoint, all within the budget, at most rules.max_pieces; empty where nothing fits or nothing pays.
std::vector<Wish> choose(const View& view, const Budget& budget, std::span<const Piece> kept, const Rules& rules,
                         std::uint64_t seed);

}  // namespace kvasir::market
