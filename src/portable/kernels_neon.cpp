#include "portable/kernel_table.h"

#if defined(__aarch64__)
#include "portable/lanes_neon.h"
#include "portable/table_of_singles.h"
#endif

namespace kvasir::portable {

const KernelTable* neon_table() {
#if defined(__aarch64__)
    static const KernelTable table =
        table_of_lanes<Neon>(Isa::neon, multiply_of_singles<Neon, Tiles<Neon>, SingleRow<NeonSingle>>);
    return &table;
#else
    return nullptr;
#endif
}

}  // namespace kvasir::portable
