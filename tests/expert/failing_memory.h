// Memory that runs out when a test wants it to: every allocation by `new` in this test program goes through here.
#pragma once

#include <cstddef>

namespace kvasir::test {

// While one exists, the thread that made it can allocate `allowed` times more, then std::bad_alloc is thrown. Other
// threads allocate as ever, and are counted.
class FailingMemory {
  public:
    explicit FailingMemory(std::size_t allowed);
    ~FailingMemory();
    FailingMemory(const FailingMemory&) = delete;
    FailingMemory& operator=(const FailingMemory&) = delete;

    static std::size_t allocations_elsewhere();
};

}  // namespace kvasir::test
