// What an instruction set provides. Each table is built in a file of its own with its own compiler flags; whatever such
// a file instantiates must be a template over a type of that file, or the linker may merge it with another's.
#pragma once

#include "portable/kernels.h"

namespace kvasir::portable {

// Products of output rows [begin, end) with all `rows`.
using Multiply = void (*)(const Matrix& matrix, const RowsView& rows, std::size_t begin, std::size_t end, float* out,
                          std::size_t stride);

struct KernelTable {
    Isa isa;
    // Rows that a Multiply takes at least; fewer go to the plain kernel.
    std::size_t tile_rows;
    // For a type: its kernel.
    Multiply (*multiply)(ggml_type type);
    void (*quantise)(Form form, const float* row, std::size_t columns, std::byte* out);
    // Blocks of a prepared row from its bytes, or from its numbers.
    void (*read)(const std::byte* bytes, Form form, std::size_t units, void* blocks);
    void (*prepare)(const float* values, Form form, std::size_t units, void* blocks);
    void (*activate)(const Activation& activation, const float* gate, const float* up, std::size_t count, float* out);
    void (*scale_and_bias)(float* values, std::size_t count, const float* scale, const float* bias);
    void (*to_result)(const float* row, std::size_t columns, std::byte* out);
    void (*from_result)(const std::byte* result, std::size_t columns, float* row);
};

const KernelTable& plain_table();
// Null where the compiler's target has no such instructions.
const KernelTable* avx2_table();
const KernelTable* avx512_table();
const KernelTable* neon_table();
const KernelTable* neon_dot_table();
const KernelTable* neon_i8mm_table();
const KernelTable* wasm_table();

}  // namespace kvasir::portable
