// A layer of random expert weights that owns its memory, for tests of whatever computes with them.
#pragma once

#include <ggml.h>

#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <vector>

#include "expert/engine.h"

namespace kvasir::test {

struct LayerShape {
    std::uint64_t hidden = 64;
    std::uint64_t ff = 96;
    std::uint32_t experts = 4;
    ggml_type in_type = GGML_TYPE_F32;  // of gate and up
    ggml_type down_type = GGML_TYPE_F32;
    std::optional<ggml_type> gate_type = std::nullopt;  // where it is not up's
};

class RandomLayer {
  public:
    RandomLayer(const Recipe& recipe, const LayerShape& shape, std::uint32_t seed);

    const LayerWeights& weights() const { return weights_; }
    LayerWeights& weights() { return weights_; }
    const Recipe& recipe() const { return recipe_; }
    // The numbers the weights stand for, dequantised: [experts][rows][columns] in memory order.
    const std::vector<float>& values(Role role) const { return values_.at(role); }

  private:
    void add_matrix(Role role, ggml_type type, std::uint64_t columns, std::uint64_t rows);
    void add_floats(Role role, std::uint64_t columns, float from, float to);

    Recipe recipe_;
    std::mt19937 random_;
    LayerWeights weights_;
    std::map<Role, std::vector<std::byte>> bytes_;
    std::map<Role, std::vector<float>> values_;
};

std::vector<float> random_floats(std::mt19937& random, std::size_t count, float from, float to);
// `slots` distinct experts for each of `rows` rows, in row order.
std::vector<Pair> random_pairs(std::mt19937& random, std::uint32_t rows, std::uint32_t slots, std::uint32_t experts);

}  // namespace kvasir::test
