// Which slabs of a download are still to be had, in stretches that one request can ask for.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "fetch/plan.h"

namespace kvasir::fetch {

// Slabs that follow each other without a gap in one file; of the first, what has arrived already is left out.
struct Stretch {
    std::size_t first = 0;
    std::size_t count = 0;
    std::uint32_t file = 0;
    std::uint64_t offset = 0;  // in that file
    std::uint64_t bytes = 0;
};

// Not thread-safe.
class SlabQueue {
  public:
    // `plan` must outlive it.
    explicit SlabQueue(const FetchPlan& plan);

    // So much of a slab is there from its beginning; all of it takes it out of the queue.
    void set_arrived(std::size_t slab, std::uint64_t bytes);
    std::uint64_t arrived(std::size_t slab) const { return arrived_[slab]; }
    // The next stretch, of at most `most` bytes but at least one slab; none when nothing is waiting.
    std::optional<Stretch> take(std::uint64_t most);
    // A slab that was taken and not completed.
    void give_back(std::size_t slab);

    bool empty() const { return waiting_.empty(); }
    // Of everything waiting.
    std::uint64_t missing_bytes() const { return missing_bytes_; }

  private:
    const FetchPlan& plan_;
    std::vector<std::uint64_t> arrived_;
    std::set<std::size_t> waiting_;
    std::uint64_t missing_bytes_ = 0;
};

}  // namespace kvasir::fetch
