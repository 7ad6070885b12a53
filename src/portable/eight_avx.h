// Section 4's eight lanes as one AVX vector, for floats.h. A template over the file's tag; see kernel_table.h.
#pragma once

#include <immintrin.h>

#include <cstddef>

#include "portable/types.h"

namespace kvasir::portable {

template <class Tag>
struct EightAvx {
    using Vector = __m256;

    static Vector zero() { return _mm256_setzero_ps(); }
    // Eight numbers of F32, F16 or BF16.
    template <ggml_type kType>
    static Vector load(const std::byte* from) {
        if constexpr (kType == GGML_TYPE_F32) return _mm256_loadu_ps(reinterpret_cast<const float*>(from));
        const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
        if constexpr (kType == GGML_TYPE_F16) return _mm256_cvtph_ps(halves);
        return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
    }
    static void store(float* to, Vector value) { _mm256_storeu_ps(to, value); }
    // Two roundings.
    static Vector add_product(Vector sum, Vector a, Vector b) { return _mm256_add_ps(sum, _mm256_mul_ps(a, b)); }
};

}  // namespace kvasir::portable
