#include "fetch/slab_queue.h"

namespace kvasir::fetch {

SlabQueue::SlabQueue(const FetchPlan& plan) : plan_(plan), arrived_(plan.slabs.size()) {
    for (std::size_t i = 0; i < plan.slabs.size(); ++i)
        waiting_.insert(waiting_.end(), i);
    missing_bytes_ = plan.slab_bytes;
}

void SlabQueue::set_arrived(std::size_t slab, std::uint64_t bytes) {
    const bool waits = waiting_.contains(slab);
    if (waits) missing_bytes_ = missing_bytes_ + arrived_[slab] - bytes;
    arrived_[slab] = bytes;
    if (waits && bytes == plan_.slabs[slab].bytes) waiting_.erase(slab);
}

std::optional<Stretch> SlabQueue::take(std::uint64_t most) {
    if (waiting_.empty()) return std::nullopt;
    const std::size_t first = *waiting_.begin();
    const WantedSlab& begin = plan_.slabs[first];
    Stretch stretch{first, 0, begin.file, begin.offset + arrived_[first], 0};
    std::uint64_t end = begin.offset;
    for (std::size_t i = first; i < plan_.slabs.size(); ++i) {
        const WantedSlab& slab = plan_.slabs[i];
        if (!waiting_.contains(i) || slab.file != begin.file || slab.offset != end) break;
        const std::uint64_t missing = slab.bytes - arrived_[i];
        if (i > first && (arrived_[i] > 0 || stretch.bytes + missing > most)) break;
        ++stretch.count;
        stretch.bytes += missing;
        end += slab.bytes;
        waiting_.erase(i);
    }
    missing_bytes_ -= stretch.bytes;
    return stretch;
}

void SlabQueue::give_back(std::size_t slab) {
    if (waiting_.insert(slab).second) missing_bytes_ += plan_.slabs[slab].bytes - arrived_[slab];
}

}  // namespace kvasir::fetch
