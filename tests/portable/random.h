// Numbers and weights for tests, the same on every machine.
#pragma once

#include <cstdint>
#include <vector>

#include "portable/types.h"

namespace kvasir::portable::test {

// SplitMix64.
class Random {
  public:
    explicit Random(std::uint64_t seed) : state_(seed) {}
    std::uint64_t bits();
    std::uint64_t below(std::uint64_t limit) { return bits() % limit; }
    // Close to normal, mean 0, deviation 1: a sum of twelve uniform numbers.
    float normal();
    // Any f32 whatever, NaN and infinities included.
    float any_float();

  private:
    std::uint64_t state_;
};

// All types of portable/1.
std::vector<ggml_type> all_types();

std::vector<float> normal_row(Random& random, std::size_t columns, float scale = 1.0F);

enum class Fill {
    sane,      // random bytes, but scales as a model has them
    anything,  // random bytes: any scale, NaN included
    largest,   // all integers at the ends of their range
};
// The bytes of `rows` rows.
ByteVector weights(Random& random, ggml_type type, std::size_t rows, std::size_t columns, Fill fill);

}  // namespace kvasir::portable::test
