// Draws and quantises weights. What a tensor holds depends on seed, name, shape, type and fill alone: not on threads,
// and not on the order of calls.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "synth/plan.h"

namespace kvasir::synth {

// A share of one tensor, small enough to be made in memory.
struct Unit {
    std::size_t tensor = 0;
    std::int64_t first_row = 0;
    std::int64_t rows = 0;
};

// Cuts tensors into units, in file order.
std::vector<Unit> cut_into_units(std::span<const TensorPlan> tensors);

// Small tensors are drawn number by number. Quantising is slow (tens of MB/s for some types), so the rows of big ones
// are put together from a pool of quantised random blocks, another choice for every row. Thread-safe once made.
class Filler {
  public:
    Filler(std::uint64_t seed, std::span<const TensorPlan> tensors);

    // Makes `unit`'s bytes into `out`, of exactly that size.
    void fill(const Unit& unit, std::span<std::byte> out) const;

  private:
    struct Pool {
        std::size_t block_bytes = 0;
        ByteVector blocks;
    };
    using PoolKey = std::pair<ggml_type, float>;  // type and deviation

    static bool pooled(const TensorPlan& tensor);
    Pool make_pool(PoolKey key) const;
    static void fill_from_pool(const Pool& pool, std::uint64_t seed, std::span<std::byte> out);

    std::uint64_t seed_;
    std::span<const TensorPlan> tensors_;
    std::map<PoolKey, Pool> pools_;
};

}  // namespace kvasir::synth
