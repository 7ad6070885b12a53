#include "backbone/lazy_loading.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

namespace kvasir {
namespace {

// About a token's worth of layers: a model that has become resident is soon left alone.
constexpr int kCalmCalls = 64;

std::uintptr_t page_size() {
    static const auto size = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    return size;
}

// Faults that waited for the disk, and blocks read for us (read-ahead that we asked for counts only there).
long disk_reads() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_majflt + usage.ru_inblock;
}

}  // namespace

void advise_experts(const void* data, std::size_t bytes) {
    std::uintptr_t mask = page_size() - 1;
    auto begin = (reinterpret_cast<std::uintptr_t>(data) + mask) & ~mask;
    auto end = (reinterpret_cast<std::uintptr_t>(data) + bytes) & ~mask;
    if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_RANDOM);
}

bool SlabPrefetcher::wanted() {
    long reads = disk_reads();
    if (reads != disk_reads_) {
        disk_reads_ = reads;
        calm_ = 0;
    } else if (calm_ < kCalmCalls) {
        ++calm_;
    }
    return calm_ < kCalmCalls;
}

void SlabPrefetcher::prefetch(const std::byte* data, std::size_t slab_bytes, std::span<const std::uint32_t> experts) {
    std::uintptr_t mask = page_size() - 1;
    for (std::uint32_t expert : experts) {
        auto slab = reinterpret_cast<std::uintptr_t>(data) + expert * slab_bytes;
        std::uintptr_t begin = slab & ~mask;
        std::uintptr_t end = (slab + slab_bytes + mask) & ~mask;
        madvise(reinterpret_cast<void*>(begin), end - begin, MADV_WILLNEED);
    }
}

}  // namespace kvasir
