// How much memory this process may use.
#pragma once

#include <cstdint>

namespace kvasir {

// The machine's memory or the smallest limit of this process's memory cgroups (v1 and v2, ancestors included),
// whichever is less, in bytes. What cannot be read counts as no limit.
std::uint64_t memory_limit();

}  // namespace kvasir
