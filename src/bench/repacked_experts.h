// Experts as ggml multiplies them fastest: matrices of its own order of blocks (the CPU backend's repacking buffer),
// one MUL_MAT for all rows of an expert. Its bits depend on how many rows there are, so no arithmetic of ours may use
// it; it is what the portable kernels are measured against where many rows want one expert.
#pragma once

#include <cstdint>
#include <memory>

#include "base/result.h"
#include "expert/layer_weights.h"

namespace kvasir {

// SwiGLU experts. Not thread-safe.
class RepackedExperts {
  public:
    // The first eight experts of `weights` (copied), each for `rows` rows; null where this ggml does not repack their
    // type on this machine.
    static Result<std::unique_ptr<RepackedExperts>> create(const LayerWeights& weights, std::uint32_t rows,
                                                           int threads);
    ~RepackedExperts();
    RepackedExperts(const RepackedExperts&) = delete;
    RepackedExperts& operator=(const RepackedExperts&) = delete;

    // All eight, of the same rows.
    Status compute();

  private:
    struct Parts;
    explicit RepackedExperts(std::unique_ptr<Parts> parts);
    std::unique_ptr<Parts> parts_;
};

}  // namespace kvasir
