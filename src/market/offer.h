// What a hub offers of one model: its layers that hold routed experts, how many experts each has and how large one is.
// An expert of a layer is a cell; cells are numbered through all layers of the offer.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/sha256.h"
#include "gguf/manifest.h"
#include "gguf/piece.h"

namespace kvasir::market {

using ModelId = Digest;
using CellIndex = std::uint32_t;

inline constexpr std::uint32_t kMaxCells = 1'000'000;

struct OfferLayer {
    std::uint32_t layer = 0;
    std::uint32_t experts = 0;
    std::uint64_t expert_bytes = 0;  // all slabs of one expert
    bool operator==(const OfferLayer&) const = default;
};

// Immutable once made.
class Offer {
  public:
    // Ascending layers with experts of at least one byte, at most kMaxCells in all; else ErrorKind::invalid.
    static Result<Offer> create(const ModelId& model, std::string name, std::uint32_t target,
                                std::vector<OfferLayer> layers);
    // Layers without routed experts are left out; a model that has none is ErrorKind::unsupported.
    static Result<Offer> from_manifest(const Manifest& manifest, std::uint32_t target);

    const ModelId& model() const { return model_; }
    const std::string& name() const { return name_; }
    std::uint32_t target() const { return target_; }
    std::span<const OfferLayer> layers() const { return layers_; }
    std::uint32_t cells() const { return first_.back(); }
    std::uint64_t bytes() const { return bytes_; }  // of one replica of everything

    // The first cell of layers()[index]; first_cell(layers().size()) is cells().
    CellIndex first_cell(std::size_t index) const { return first_[index]; }
    // The index in layers() of a layer's number, or layers().size().
    std::size_t find(std::uint32_t layer) const;
    // The cells of a piece. A layer that is not offered or an expert that does not exist is ErrorKind::invalid.
    struct Cells {
        std::size_t layer = 0;  // index in layers()
        CellIndex first = 0;
        CellIndex end = 0;
    };
    Result<Cells> cells_of(const Piece& piece) const;

    bool operator==(const Offer&) const = default;

  private:
    Offer() = default;

    ModelId model_{};
    std::string name_;
    std::uint32_t target_ = 0;
    std::vector<OfferLayer> layers_;
    std::vector<CellIndex> first_;
    std::uint64_t bytes_ = 0;
};

}  // namespace kvasir::market
