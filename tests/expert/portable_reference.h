// What an expert must compute in portable/1.
#pragma once

#include <span>
#include <vector>

#include "base/bytes.h"
#include "expert/layer_weights.h"
#include "expert/pair.h"

namespace kvasir::test {

// Rows of activations, [n][hidden], as they travel to whoever computes them with these weights.
ByteVector encoded_rows(Arithmetic arithmetic, const LayerWeights& weights, std::span<const float> rows);

// Section 6 of docs/portable-arithmetic.md, put together from the scalar reference (portable/reference.h): one result
// row per pair, as it travels. `rows` are the numbers themselves; each matrix quantises them for itself.
ByteVector portable_output(const LayerWeights& weights, const Recipe& recipe, std::span<const float> rows,
                           std::span<const Pair> pairs);

}  // namespace kvasir::test
