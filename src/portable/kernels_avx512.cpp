#include "portable/kernel_table.h"

#if defined(__AVX512VNNI__)
#include "portable/lanes_avx512.h"
#include "portable/table_of_streams.h"
#endif

namespace kvasir::portable {

const KernelTable* avx512_table() {
#if defined(__AVX512VNNI__)
    static const KernelTable table = table_of_lanes<Avx512>(Isa::avx512, streams_of<Avx512>);
    return &table;
#else
    return nullptr;
#endif
}

}  // namespace kvasir::portable
