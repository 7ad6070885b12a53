// The products of AVX2 and AVX-512: one row is bound by memory and streamed (stream_avx.h); many rows are bound by
// arithmetic and go by tiles.
#pragma once

#include "portable/stream_avx.h"
#include "portable/stream_narrow_avx.h"
#include "portable/table_of_lanes.h"

namespace kvasir::portable {

// S is a stream of the type.
template <class V, ggml_type kType, class S>
void stream_or_tiles(const Matrix& matrix, const RowsView& rows, std::size_t begin, std::size_t end, float* out,
                     std::size_t stride) {
    if (rows.count() == 1 && S::takes(rows.units())) return S::multiply(matrix, rows, begin, end, out);
    multiply_of<V>(kType)(matrix, rows, begin, end, out, stride);
}

template <class V>
Multiply streams_of(ggml_type type) {
    switch (type) {
        case GGML_TYPE_Q4_0:
            return stream_or_tiles<V, GGML_TYPE_Q4_0, NarrowStream<V, StreamQ4_0>>;
        case GGML_TYPE_Q4_1:
            return stream_or_tiles<V, GGML_TYPE_Q4_1, NarrowStream<V, StreamQ4_1>>;
        case GGML_TYPE_Q5_0:
            return stream_or_tiles<V, GGML_TYPE_Q5_0, NarrowStream<V, StreamQ5_0>>;
        case GGML_TYPE_Q5_1:
            return stream_or_tiles<V, GGML_TYPE_Q5_1, NarrowStream<V, StreamQ5_1>>;
        case GGML_TYPE_Q8_0:
            return stream_or_tiles<V, GGML_TYPE_Q8_0, NarrowStream<V, StreamQ8_0>>;
        case GGML_TYPE_IQ4_NL:
            return stream_or_tiles<V, GGML_TYPE_IQ4_NL, NarrowStream<V, StreamIq4Nl>>;
        case GGML_TYPE_MXFP4:
            return stream_or_tiles<V, GGML_TYPE_MXFP4, NarrowStream<V, StreamMxfp4>>;
        case GGML_TYPE_Q2_K:
            return stream_or_tiles<V, GGML_TYPE_Q2_K, Stream<V, StreamQ2K>>;
        case GGML_TYPE_Q3_K:
            return stream_or_tiles<V, GGML_TYPE_Q3_K, Stream<V, StreamQ3K>>;
        case GGML_TYPE_Q4_K:
            return stream_or_tiles<V, GGML_TYPE_Q4_K, Stream<V, StreamQ4K>>;
        case GGML_TYPE_Q5_K:
            return stream_or_tiles<V, GGML_TYPE_Q5_K, Stream<V, StreamQ5K>>;
        case GGML_TYPE_Q6_K:
            return stream_or_tiles<V, GGML_TYPE_Q6_K, Stream<V, StreamQ6K>>;
        case GGML_TYPE_IQ4_XS:
            return stream_or_tiles<V, GGML_TYPE_IQ4_XS, Stream<V, StreamIq4Xs>>;
        default:
            return multiply_of<V>(type);
    }
}

}  // namespace kvasir::portable
