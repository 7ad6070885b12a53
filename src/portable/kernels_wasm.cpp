#include "portable/kernel_table.h"

#if defined(__wasm_simd128__)
#include "portable/lanes_wasm.h"
#include "portable/table_of_singles.h"
#endif

namespace kvasir::portable {

const KernelTable* wasm_table() {
#if defined(__wasm_simd128__)
    static const KernelTable table =
        table_of_lanes<Wasm>(Isa::wasm, multiply_of_singles<Wasm, Tiles<WasmWhole>, SingleRow<WasmWhole>>);
    return &table;
#else
    return nullptr;
#endif
}

}  // namespace kvasir::portable
