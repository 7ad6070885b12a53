// Who holds what: (layer, expert) → workers. An immutable snapshot, replaced as a whole when a worker's pieces change.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "gguf/piece.h"

namespace kvasir {

class ReplicaBook {
  public:
    // `worker` is the caller's index; `epoch` the piece set that `pieces` belongs to.
    struct Entry {
        std::uint32_t worker = 0;
        std::uint64_t epoch = 0;
        std::vector<Piece> pieces;
    };
    struct Holder {
        std::uint32_t worker = 0;
        std::uint64_t epoch = 0;
        std::strong_ordering operator<=>(const Holder&) const = default;  // NOLINT(modernize-use-nullptr): no pointer
    };

    ReplicaBook() = default;
    // Pieces may overlap and hold any numbers: memory grows with the number of pieces, not with what they claim.
    explicit ReplicaBook(std::span<const Entry> entries);

    // The workers that hold an expert, each once, in rising order. Lives as long as the book.
    std::span<const Holder> holders(std::uint32_t layer, std::uint32_t expert) const;
    // All workers that hold anything of a layer, each once.
    std::span<const Holder> holders(std::uint32_t layer) const;

  private:
    // Experts from `first` up to the next segment's `first` are held by holders[begin, end).
    struct Segment {
        std::uint64_t first = 0;
        std::uint32_t begin = 0;
        std::uint32_t end = 0;
    };
    struct Layer {
        std::vector<Segment> segments;  // sorted by `first`
        std::vector<Holder> holders;
        std::vector<Holder> anywhere;
    };
    struct Claim {
        std::uint64_t first = 0;
        std::uint64_t end = 0;
        Holder holder;
    };
    static Layer make_layer(std::vector<Claim> claims);
    static void sort_unique(std::vector<Holder>& holders, std::size_t from);

    std::unordered_map<std::uint32_t, Layer> layers_;
};

}  // namespace kvasir
