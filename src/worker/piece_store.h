// The experts a worker holds: slices, mapped into memory.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "base/files.h"
#include "base/result.h"
#include "base/sha256.h"
#include "expert/engine.h"
#include "gguf/piece.h"

namespace kvasir {

// One piece of one slice, as an engine takes it.
struct HeldPiece {
    Piece piece;
    LayerWeights weights;            // local ids: global id − piece.first
    std::uint64_t expert_bytes = 0;  // of one expert
};

// Immutable once opened. Addresses of its pieces stay as they are when it is moved.
class PieceStore {
  public:
    struct Place {
        const HeldPiece* held = nullptr;
        std::uint32_t local = 0;
    };

    // Opens and maps all files; no weight is read. They must be of one model (ErrorKind::usage otherwise) and know its
    // id; pieces may overlap. `epoch` stands for this set of pieces, never 0.
    static Result<PieceStore> open(std::span<const std::filesystem::path> slices, std::uint64_t epoch);

    const Digest& model_id() const { return model_id_; }
    std::uint64_t epoch() const { return epoch_; }
    // Sorted, overlaps merged.
    const std::vector<Piece>& pieces() const { return pieces_; }
    bool holds_layer(std::uint32_t layer) const { return layers_.contains(layer); }
    // Where a global expert id's weights are; none where it is not held.
    std::optional<Place> find(std::uint32_t layer, std::uint32_t expert) const;
    // Distinct (layer, expert), and the bytes of the weights in all slices.
    std::uint64_t expert_count() const;
    std::uint64_t weight_bytes() const { return weight_bytes_; }

  private:
    PieceStore() = default;
    Status add(const std::filesystem::path& path);

    Digest model_id_{};
    std::uint64_t epoch_ = 1;
    std::uint64_t weight_bytes_ = 0;
    std::vector<MappedFile> files_;
    std::deque<HeldPiece> held_;
    std::vector<Piece> pieces_;
    std::map<std::uint32_t, std::vector<const HeldPiece*>> layers_;  // by first expert
};

}  // namespace kvasir
