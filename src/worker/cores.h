// The processor cores that this process may use.
#pragma once

#include <vector>

#include "base/result.h"

namespace kvasir {

// One logical processor of each physical core in this process's affinity mask, ascending; never empty.
std::vector<int> physical_cores();

// Restricts the calling thread, and threads it starts from now on, to the first `count` of physical_cores().
Status pin_to_cores(int count);

}  // namespace kvasir
