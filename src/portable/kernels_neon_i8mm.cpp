#include "portable/kernel_table.h"

#if defined(__ARM_FEATURE_MATMUL_INT8)
#include "portable/lanes_neon_i8mm.h"
#include "portable/pair_tiles.h"
#include "portable/table_of_singles.h"
#endif

namespace kvasir::portable {

const KernelTable* neon_i8mm_table() {
#if defined(__ARM_FEATURE_MATMUL_INT8)
    static const KernelTable table = table_of_lanes<NeonI8mm>(
        Isa::neon_i8mm,
        multiply_of_singles<NeonI8mm, PairTiles<NeonPairs>, SingleRow<NeonI8mmSingle>, SingleRow<NeonI8mm>>);
    return &table;
#else
    return nullptr;
#endif
}

}  // namespace kvasir::portable
