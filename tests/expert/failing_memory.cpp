#include "expert/failing_memory.h"

#include <atomic>
#include <cstdlib>
#include <limits>
#include <new>

namespace {

constexpr std::size_t kUnlimited = std::numeric_limits<std::size_t>::max();
thread_local std::size_t allowed_here = kUnlimited;
std::atomic<bool> watching{false};
std::atomic<std::size_t> elsewhere{0};

void* allocate(std::size_t size, std::size_t alignment) {
    if (allowed_here == 0) throw std::bad_alloc();
    if (allowed_here != kUnlimited) {
        --allowed_here;
    } else if (watching) {
        ++elsewhere;
    }
    const std::size_t rounded = (size + alignment - 1) / alignment * alignment;
    void* memory = std::aligned_alloc(alignment, rounded == 0 ? alignment : rounded);
    if (memory == nullptr) throw std::bad_alloc();
    return memory;
}

}  // namespace

void* operator new(std::size_t size) {
    return allocate(size, alignof(std::max_align_t));
}
void* operator new(std::size_t size, std::align_val_t alignment) {
    return allocate(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept {
    std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
    std::free(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
    std::free(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
    std::free(memory);
}

namespace kvasir::test {

FailingMemory::FailingMemory(std::size_t allowed) {
    elsewhere = 0;
    watching = true;
    allowed_here = allowed;
}
FailingMemory::~FailingMemory() {
    allowed_here = kUnlimited;
    watching = false;
}

std::size_t FailingMemory::allocations_elsewhere() {
    return elsewhere;
}

}  // namespace kvasir::test
