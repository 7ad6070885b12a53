// What an expert must compute: in double precision, and as llama.cpp's own graph.
#pragma once

#include <span>
#include <vector>

#include "expert/random_layer.h"

namespace kvasir::test {

// Straight from the recipe's definition, on the dequantised weights.
std::vector<double> exact_output(const RandomLayer& layer, std::span<const float> row, std::uint32_t expert);

// `out`, [pairs][hidden], is near the exact output: nowhere further away than `tolerance` times its root mean square.
void expect_close(const RandomLayer& layer, std::span<const float> rows, std::span<const Pair> pairs,
                  std::span<const float> out, double tolerance);

// The nodes of llama.cpp's build_moe_ffn, up to the down projection, over all rows at once. `pairs` in row order, as
// many for each row.
std::vector<float> llama_graph_output(const RandomLayer& layer, std::span<const float> rows,
                                      std::span<const Pair> pairs);

}  // namespace kvasir::test
