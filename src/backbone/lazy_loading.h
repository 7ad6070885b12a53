// Experts in a mapped file that take memory only once they are used: advice to the kernel, and reading the selected
// slabs ahead while the process is short of memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace kvasir {

// Marks mapped expert weights (whole pages within [data, data + bytes)) as read in no order, so that a page fault
// reads what was asked for and nothing around it. Harmless on memory that is not mapped from a file.
void advise_experts(const void* data, std::size_t bytes);

// Reads selected slabs from disk ahead of their use, all at once instead of page by page. Costs one getrusage() per
// call while the process reads nothing from disk. Not thread-safe.
class SlabPrefetcher {
  public:
    // Whether reading ahead is worth its system calls now: something was lately read from disk. Call once per layer.
    bool wanted();
    // Starts reading the slabs `experts` of the tensor at `data`, whose slabs are `slab_bytes` long.
    static void prefetch(const std::byte* data, std::size_t slab_bytes, std::span<const std::uint32_t> experts);

  private:
    long disk_reads_ = -1;
    int calm_ = 0;  // calls since the last read from disk
};

}  // namespace kvasir
