// The products of AVX2 and AVX-512: one row is bound by memory and streamed (stream_avx.h); many rows are bound by
// arithmetic and go by tiles.
#pragma once

#include "portable/stream_avx.h"
#include "portable/table_of_lanes.h"

namespace kvasir::portable {

template <class V, ggml_type kType, class Type>
void stream_or_tiles(const Matrix& matrix, const RowsView& rows, std::size_t begin, std::size_t end, float* out,
                     std::size_t stride) {
    using S = Stream<V, Type>;
    if (rows.count() == 1 && S::takes(rows.units())) return S::multiply(matrix, rows, begin, end, out);
    multiply_of<V>(kType)(matrix, rows, begin, end, out, stride);
}

template <class V>
Multiply streams_of(ggml_type type) {
    switch (type) {
        case GGML_TYPE_Q2_K:
            return stream_or_tiles<V, GGML_TYPE_Q2_K, StreamQ2K>;
        case GGML_TYPE_Q3_K:
            return stream_or_tiles<V, GGML_TYPE_Q3_K, StreamQ3K>;
        case GGML_TYPE_Q4_K:
            return stream_or_tiles<V, GGML_TYPE_Q4_K, StreamQ4K>;
        case GGML_TYPE_Q5_K:
            return stream_or_tiles<V, GGML_TYPE_Q5_K, StreamQ5K>;
        case GGML_TYPE_Q6_K:
            return stream_or_tiles<V, GGML_TYPE_Q6_K, StreamQ6K>;
        case GGML_TYPE_IQ4_XS:
            return stream_or_tiles<V, GGML_TYPE_IQ4_XS, StreamIq4Xs>;
        default:
            return multiply_of<V>(type);
    }
}

}  // namespace kvasir::portable
