#include "portable/kernel_table.h"

#if defined(__ARM_FEATURE_DOTPROD)
#include "portable/lanes_neon_dot.h"
#include "portable/table_of_singles.h"
#endif

namespace kvasir::portable {

const KernelTable* neon_dot_table() {
#if defined(__ARM_FEATURE_DOTPROD)
    static const KernelTable table = table_of_singles<NeonDot, NeonDot, NeonDotSingle>(Isa::neon_dot);
    return &table;
#else
    return nullptr;
#endif
}

}  // namespace kvasir::portable
