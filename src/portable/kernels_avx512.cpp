#include "portable/kernel_table.h"

#if defined(__AVX512VNNI__)
#include "portable/lanes_avx512.h"
#include "portable/stream_avx512.h"
#include "portable/table_of_lanes.h"
#endif

namespace kvasir::portable {

#if defined(__AVX512VNNI__)
namespace {

// One row is bound by memory, and Q6_K's blocks suit tiles worst; many rows are bound by arithmetic.
void multiply_q6k(const Matrix& matrix, const RowsView& rows, std::size_t begin, std::size_t end, float* out,
                  std::size_t stride) {
    if (rows.count() == 1) return StreamQ6K<Avx512>::multiply(matrix, rows, begin, end, out);
    Tiles<Avx512>::multiply_wide<Q6K>(matrix, rows, begin, end, out, stride);
}

Multiply multiply_of_avx512(ggml_type type) {
    return type == GGML_TYPE_Q6_K ? multiply_q6k : multiply_of<Avx512>(type);
}

}  // namespace
#endif

const KernelTable* avx512_table() {
#if defined(__AVX512VNNI__)
    static const KernelTable table = table_of_lanes<Avx512>(Isa::avx512, multiply_of_avx512);
    return &table;
#else
    return nullptr;
#endif
}

}  // namespace kvasir::portable
