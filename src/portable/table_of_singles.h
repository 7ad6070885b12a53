// The table of an instruction set that multiplies a single row and several rows in different ways.
#pragma once

#include "portable/single_row.h"
#include "portable/table_of_lanes.h"

namespace kvasir::portable {

template <class Many, class Single, class Type>
void multiply_wide(const Matrix& matrix, const RowsView& rows, std::size_t begin, std::size_t end, float* out,
                   std::size_t stride) {
    if (rows.count() == 1) return Single::template multiply_wide<Type>(matrix, rows, begin, end, out, stride);
    Many::template multiply_wide<Type>(matrix, rows, begin, end, out, stride);
}
template <class Many, class Single, class Type>
void multiply_narrow(const Matrix& matrix, const RowsView& rows, std::size_t begin, std::size_t end, float* out,
                     std::size_t stride) {
    if (rows.count() == 1) return Single::template multiply_narrow<Type>(matrix, rows, begin, end, out, stride);
    Many::template multiply_narrow<Type>(matrix, rows, begin, end, out, stride);
}

// Many: tiles for several rows. For a single one Single, but Few for types of two and three bits. V: lanes for the
// types that Single does not take.
template <class V, class Many, class Single, class Few = Single>
Multiply multiply_of_singles(ggml_type type) {
    switch (type) {
        case GGML_TYPE_Q4_0:
            return multiply_narrow<Many, Single, Q4_0>;
        case GGML_TYPE_Q4_1:
            return multiply_narrow<Many, Single, Q4_1>;
        case GGML_TYPE_Q8_0:
            return multiply_narrow<Many, Single, Q8_0>;
        case GGML_TYPE_IQ4_NL:
            return multiply_narrow<Many, Single, Iq4Nl>;
        case GGML_TYPE_MXFP4:
            return multiply_narrow<Many, Single, Mxfp4>;
        case GGML_TYPE_Q2_K:
            return multiply_wide<Many, Few, Q2K>;
        case GGML_TYPE_Q3_K:
            return multiply_wide<Many, Few, Q3K>;
        case GGML_TYPE_Q4_K:
            return multiply_wide<Many, Single, Q4K>;
        case GGML_TYPE_Q5_K:
            return multiply_wide<Many, Single, Q5K>;
        case GGML_TYPE_Q6_K:
            return multiply_wide<Many, Single, Q6K>;
        case GGML_TYPE_IQ4_XS:
            return multiply_wide<Many, Single, Iq4Xs>;
        default:
            return multiply_of<V>(type);
    }
}

}  // namespace kvasir::portable
