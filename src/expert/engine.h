// The pure function a worker is: (weights, recipe, rows, pairs) → one output row per pair. A pair's bits depend on its
// row, its expert's weights, the recipe and the arithmetic alone, never on which other pairs are in the call, their
// order, or the number of threads.
#pragma once

#include <memory>
#include <span>

#include "base/bytes.h"
#include "base/result.h"
#include "expert/arithmetic.h"
#include "expert/layer_weights.h"
#include "expert/pair.h"

namespace kvasir {

// Not thread-safe: one thread at a time. Calls run on ggml's team of at most `threads` threads.
class Engine {
  public:
    static Result<std::unique_ptr<Engine>> create(Arithmetic arithmetic, int threads);
    virtual ~Engine() = default;

    // rows: [n] rows of input_encoding(arithmetic, weights), 4-byte aligned; pairs: local expert ids; out: [pairs] rows
    // of output_encoding(arithmetic), 4-byte aligned where that is f32. Every index and size is checked before use. On
    // an error `out` is unspecified and must not be used.
    Status compute(const LayerWeights& weights, const Recipe& recipe, ByteSpan rows, std::span<const Pair> pairs,
                   std::span<std::byte> out);

  protected:
    explicit Engine(Arithmetic arithmetic) : arithmetic_(arithmetic) {}

  private:
    // With arguments that fit, and at least one pair.
    virtual Status compute_checked(const LayerWeights& weights, const Recipe& recipe, ByteSpan rows,
                                   std::span<const Pair> pairs, std::span<std::byte> out) = 0;

    const Arithmetic arithmetic_;
};

}  // namespace kvasir
