#include "portable/kernel_table.h"

#if defined(__AVX2__) && defined(__F16C__)
#include "portable/lanes_avx2.h"
#include "portable/table_of_streams.h"
#endif

namespace kvasir::portable {

const KernelTable* avx2_table() {
#if defined(__AVX2__) && defined(__F16C__)
    static const KernelTable table = table_of_lanes<Avx2>(Isa::avx2, streams_of<Avx2>);
    return &table;
#else
    return nullptr;
#endif
}

}  // namespace kvasir::portable
