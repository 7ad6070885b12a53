#include "portable/kernel_table.h"

#if defined(__ARM_FEATURE_DOTPROD)
#include "portable/lanes_neon_dot.h"
#include "portable/table_of_singles.h"
#endif

namespace kvasir::portable {

const KernelTable* neon_dot_table() {
#if defined(__ARM_FEATURE_DOTPROD)
    static const KernelTable table = table_of_lanes<NeonDot>(
        Isa::neon_dot, multiply_of_singles<NeonDot, Tiles<NeonDot>, SingleRow<NeonDotSingle>, SingleRow<NeonDot>>);
    return &table;
#else
    return nullptr;
#endif
}

}  // namespace kvasir::portable
