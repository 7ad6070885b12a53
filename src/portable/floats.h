// Products with weights of F32, F16 and BF16: the eight lanes of section 4 are the lanes of one AVX vector. Four output
// rows at a time hide the additions' latency. A template over the file's tag; see kernel_table.h.
#pragma once

#include <immintrin.h>

#include <cstddef>

#include "portable/numbers.h"
#include "portable/prepared.h"

namespace kvasir::portable {

template <class Tag>
class FloatProducts {
  public:
    template <ggml_type kType>
    static void multiply(const Matrix& matrix, const PreparedRows& rows, std::size_t begin, std::size_t end, float* out,
                         std::size_t stride) {
        std::size_t output = begin;
        for (; output + 4 <= end; output += 4)
            outputs<kType, 4>(matrix, rows, output, out, stride);
        for (; output < end; ++output)
            outputs<kType, 1>(matrix, rows, output, out, stride);
    }

  private:
    static constexpr std::size_t bytes_of(ggml_type type) { return type == GGML_TYPE_F32 ? 4 : 2; }

    template <ggml_type kType>
    static __m256 load8(const std::byte* from) {
        if constexpr (kType == GGML_TYPE_F32) return _mm256_loadu_ps(reinterpret_cast<const float*>(from));
        const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
        if constexpr (kType == GGML_TYPE_F16) return _mm256_cvtph_ps(halves);
        return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
    }

    template <ggml_type kType, int kOutputs>
    static void outputs(const Matrix& matrix, const PreparedRows& rows, std::size_t output, float* out,
                        std::size_t stride) {
        const std::size_t row_bytes = matrix.columns * bytes_of(kType);
        const std::byte* weights = matrix.data + output * row_bytes;
        for (std::size_t row = 0; row < rows.count(); ++row)
            one_row<kType, kOutputs>(weights, row_bytes, rows.floats(row), matrix.columns, out + row * stride + output);
    }

    template <ggml_type kType, int kOutputs>
    static void one_row(const std::byte* weights, std::size_t row_bytes, const float* row, std::size_t columns,
                        float* out) {
        constexpr std::size_t kBytes = bytes_of(kType);
        __m256 lanes[kOutputs];
        for (__m256& lane : lanes)
            lane = _mm256_setzero_ps();
        const std::size_t whole = columns & ~std::size_t{7};
        for (std::size_t column = 0; column < whole; column += 8) {
            const __m256 x = _mm256_loadu_ps(row + column);
            for (int i = 0; i < kOutputs; ++i) {
                const __m256 w = load8<kType>(weights + static_cast<std::size_t>(i) * row_bytes + column * kBytes);
                lanes[i] = _mm256_add_ps(lanes[i], _mm256_mul_ps(w, x));
            }
        }
        for (int i = 0; i < kOutputs; ++i)
            out[i] = fold<kType>(lanes[i], weights + static_cast<std::size_t>(i) * row_bytes, row, whole, columns);
    }

    // The columns after the last whole eight, and the fold.
    template <ggml_type kType>
    static float fold(__m256 vector, const std::byte* weights, const float* row, std::size_t whole,
                      std::size_t columns) {
        alignas(32) float l[8];
        _mm256_store_ps(l, vector);
        for (std::size_t j = whole; j < columns; ++j)
            l[j - whole] = l[j - whole] + column<kType>(weights, j) * row[j];
        const float y = ((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7]));
        return y == y ? y : std::bit_cast<float>(kNanBits);
    }
    template <ggml_type kType>
    static float column(const std::byte* weights, std::size_t j) {
        if constexpr (kType == GGML_TYPE_F32) {
            float w;
            std::memcpy(&w, weights + 4 * j, 4);
            return w;
        }
        std::uint16_t half;
        std::memcpy(&half, weights + 2 * j, 2);
        if constexpr (kType == GGML_TYPE_F16) return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(half)));
        return std::bit_cast<float>(static_cast<std::uint32_t>(half) << 16);
    }
};

}  // namespace kvasir::portable
