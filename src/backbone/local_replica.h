// The local replica: any expert of one layer, computed from the weights in llama.cpp's own buffers, which for a mapped
// model are the file's pages.
#pragma once

#include <cstdint>

#include "backbone/dispatcher.h"
#include "backbone/expert_group.h"
#include "backbone/lazy_loading.h"
#include "expert/engine.h"

namespace kvasir {

// The group's weights where they are; all of them must be in host memory.
LayerWeights view_weights(const ExpertGroup& group);

// Lives for one call. Computes on the caller's thread, so that it shares llama.cpp's team of OpenMP threads.
class LocalReplica : public LocalExperts {
  public:
    // Borrows the weights, the engine (of this arithmetic) and the prefetcher.
    LocalReplica(const LayerWeights& weights, Arithmetic arithmetic, Engine& engine, SlabPrefetcher& prefetcher)
        : weights_(weights), encoding_(output_encoding(arithmetic)), engine_(engine), prefetcher_(prefetcher) {}

    Status compute(const ExpertCall& call, std::span<const Pair> pairs, std::span<float> out) override;
    // Asked of it so far: what was not delegated, or came back.
    std::uint64_t pairs() const { return pairs_; }

  private:
    const LayerWeights& weights_;
    const RowEncoding encoding_;  // of results
    Engine& engine_;
    SlabPrefetcher& prefetcher_;
    std::uint64_t pairs_ = 0;
};

// Starts reading the slabs of `experts` (sorted, unique) in every tensor of the layer.
void prefetch_experts(const LayerWeights& weights, std::span<const std::uint32_t> experts);

}  // namespace kvasir
