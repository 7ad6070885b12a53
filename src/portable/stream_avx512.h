// One row of activations times Q6_K, bound by memory: rows of weights are read front to back, 32 bytes at a time, block
// by block. What the processor's prefetchers make of the order of addresses decides: the same loads out of order (four
// blocks interleaved, scales first) were measured a third slower. The integers of four units are added up across lanes
// at once.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "portable/prepared.h"

namespace kvasir::portable {

template <class V>
class StreamQ6K {
  public:
    // `rows` has one row.
    static void multiply(const Matrix& matrix, const RowsView& rows, std::size_t begin, std::size_t end, float* out) {
        const std::size_t units = rows.units();
        const std::size_t fours = units & ~std::size_t{3};
        const Wide* blocks = rows.wide(0);
        const std::byte* weights = matrix.data + begin * units * kBytes;
        for (std::size_t output = begin; output < end; ++output) {
            alignas(32) float lanes[8] = {};
            __m128 low = _mm_setzero_ps();   // lanes 0 to 3
            __m128 high = _mm_setzero_ps();  // lanes 4 to 7
            for (std::size_t unit = 0; unit < fours; unit += 4) {
                // The two take turns; swapping them is free in registers.
                const __m128 next = _mm_add_ps(low, terms(weights, blocks + unit));
                low = high;
                high = next;
                weights += 4 * kBytes;
            }
            const bool swapped = fours / 4 % 2 != 0;
            _mm_store_ps(lanes, swapped ? high : low);
            _mm_store_ps(lanes + 4, swapped ? low : high);
            for (std::size_t unit = fours; unit < units; ++unit) {
                lanes[unit % 8] = lanes[unit % 8] + term(weights, blocks[unit]);
                weights += kBytes;
            }
            const float* l = lanes;
            const float y = ((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7]));
            out[output] = y == y ? y : __builtin_bit_cast(float, 0x7FC00000U);
        }
    }

  private:
    static constexpr std::size_t kBytes = 210;

    static __m256i load(const std::byte* from) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)); }
    static __m256i nibbles(__m256i bytes) { return _mm256_and_si256(bytes, _mm256_set1_epi8(15)); }
    static __m256i top(__m256i bytes) { return _mm256_and_si256(bytes, _mm256_set1_epi8(0x30)); }

    // S of one unit, as four partial sums.
    static __m128i sums(const std::byte* block, const Wide& row) {
        const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(block + 192));
        const __m256i first = half<0>(block, row.q, bytes);
        const __m256i second = half<1>(block, row.q, _mm_srli_si128(bytes, 8));
        // 32 was added to every weight: take off 32 · Σ c·sums16.
        const __m128i ordered =
            _mm_shuffle_epi8(bytes, _mm_setr_epi8(0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15));
        const __m256i sums16 = _mm256_load_si256(reinterpret_cast<const __m256i*>(row.sums16));
        const __m256i raised = _mm256_slli_epi32(_mm256_madd_epi16(_mm256_cvtepi8_epi16(ordered), sums16), 5);
        const __m256i sum = _mm256_sub_epi32(_mm256_add_epi32(first, second), raised);
        return _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
    }

    // 128 columns; the first eight of `bytes` are their scales.
    template <int kHalf>
    static __m256i half(const std::byte* block, const std::int8_t* q, __m128i bytes) {
        const __m256i low0 = load(block + 64 * kHalf);
        const __m256i low1 = load(block + 64 * kHalf + 32);
        const __m256i high = load(block + 128 + 32 * kHalf);
        // A scale in the low half of each lane; the high half is 0, so that dpwssd multiplies by it alone.
        const __m256i scales = _mm256_and_si256(_mm256_cvtepi8_epi32(bytes), _mm256_set1_epi32(0xFFFF));
        const std::int8_t* from = q + 128 * kHalf;
        const __m256i zero = _mm256_setzero_si256();
        const __m256i even =
            scaled<0>(_mm256_or_si256(nibbles(low0), top(_mm256_slli_epi16(high, 4))), from, scales, zero);
        const __m256i odd =
            scaled<2>(_mm256_or_si256(nibbles(low1), top(_mm256_slli_epi16(high, 2))), from + 32, scales, zero);
        const __m256i upper0 = _mm256_or_si256(nibbles(_mm256_srli_epi16(low0, 4)), top(high));
        const __m256i upper1 = _mm256_or_si256(nibbles(_mm256_srli_epi16(low1, 4)), top(_mm256_srli_epi16(high, 2)));
        return _mm256_add_epi32(scaled<4>(upper0, from + 64, scales, even), scaled<6>(upper1, from + 96, scales, odd));
    }

    // 32 columns with two scales.
    template <int kScale>
    static __m256i scaled(__m256i weights, const std::int8_t* q, __m256i scales, __m256i sum) {
        const __m256i integers = _mm256_load_si256(reinterpret_cast<const __m256i*>(q));
        const __m256i products = _mm256_dpbusd_epi32(_mm256_setzero_si256(), weights, integers);
        const __m256i index =
            _mm256_setr_epi32(kScale, kScale, kScale, kScale, kScale + 1, kScale + 1, kScale + 1, kScale + 1);
        return _mm256_dpwssd_epi32(sum, products, _mm256_permutevar8x32_epi32(scales, index));
    }

    static float scale(const std::byte* block) {
        std::uint16_t half;
        std::memcpy(&half, block + 208, 2);
        return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(half)));
    }

    // The terms of four units that follow each other.
    static __m128 terms(const std::byte* weights, const Wide* blocks) {
        __m128i parts[4];
        alignas(16) float scales[4];
        alignas(16) float row_scales[4];
        // Not unrolled: the prefetchers follow addresses that rise.
#pragma GCC unroll 1
        for (std::size_t i = 0; i < 4; ++i) {
            parts[i] = sums(weights, blocks[i]);
            scales[i] = scale(weights);
            row_scales[i] = blocks[i].scale;
            weights += kBytes;
        }
        const __m128i low = _mm_hadd_epi32(parts[0], parts[1]);
        const __m128i high = _mm_hadd_epi32(parts[2], parts[3]);
        const __m128 factors = _mm_mul_ps(_mm_load_ps(scales), _mm_load_ps(row_scales));
        return _mm_mul_ps(_mm_cvtepi32_ps(_mm_hadd_epi32(low, high)), factors);
    }
    static float term(const std::byte* block, const Wide& row) {
        const __m128i pairs = _mm_hadd_epi32(sums(block, row), _mm_setzero_si128());
        const std::int32_t sum = _mm_cvtsi128_si32(_mm_hadd_epi32(pairs, pairs));
        return static_cast<float>(sum) * (scale(block) * row.scale);
    }
};

}  // namespace kvasir::portable
