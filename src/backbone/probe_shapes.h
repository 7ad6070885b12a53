// What a probe needs to know of a layer, learnt from the calls that went by.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "expert/row_encoding.h"
#include "gguf/piece.h"
#include "gguf/recipe.h"

namespace kvasir {

// The smallest real request: one row of zeros for one expert. What it costs does not depend on the numbers in it.
struct Probe {
    std::uint32_t layer = 0;
    std::uint32_t expert = 0;
    std::uint32_t hidden = 0;
    Recipe recipe;
    RowEncoding encoding = RowEncoding::f32;
};

// Thread-safe.
class ProbeShapes {
  public:
    void learn(std::uint32_t layer, std::uint32_t hidden, const Recipe& recipe, RowEncoding encoding) {
        std::scoped_lock lock(mutex_);
        shapes_[layer] = {hidden, recipe, encoding};
        ++calls_;
    }
    // A probe of something in `pieces`; none while no call of these layers was seen.
    std::optional<Probe> find(std::span<const Piece> pieces) const {
        std::scoped_lock lock(mutex_);
        for (const Piece& piece : pieces) {
            auto found = shapes_.find(piece.layer);
            if (found == shapes_.end() || piece.count == 0) continue;
            const Shape& shape = found->second;
            return Probe{piece.layer, piece.first, shape.hidden, shape.recipe, shape.encoding};
        }
        return std::nullopt;
    }
    // How many calls were seen: whether there is traffic that probing serves.
    std::uint64_t calls() const {
        std::scoped_lock lock(mutex_);
        return calls_;
    }

  private:
    struct Shape {
        std::uint32_t hidden = 0;
        Recipe recipe;
        RowEncoding encoding = RowEncoding::f32;
    };
    mutable std::mutex mutex_;
    std::map<std::uint32_t, Shape> shapes_;
    std::uint64_t calls_ = 0;
};

}  // namespace kvasir
