// One row of activations times weight types of 32 columns, as in stream_avx.h: blocks front to back. Two units share a
// vector, the first 16 columns of both in one and the others in another, so that half the sums across lanes are saved;
// the row's integers are arranged likewise once for all output rows.
#pragma once

#include "portable/stream_avx.h"

namespace kvasir::portable {

// The eight units that are multiplied at once, and the eight lanes of section 4: here always in this order.
inline constexpr std::size_t kEvenOdd[8] = {0, 2, 4, 6, 1, 3, 5, 7};

// Eight units of the row.
template <class V>
struct alignas(32) NarrowEight {
    std::int8_t low[4][32];   // columns 0..15 of units 2i and 2i + 1
    std::int8_t high[4][32];  // columns 16..31
    float scales[8];          // by kEvenOdd, as are the totals of the units' integers
    std::int32_t totals[8];

    // Of a row's units [first, first + count), zeros after them.
    void read(const Narrow* blocks, std::size_t count) {
        std::memset(this, 0, sizeof *this);
        for (std::size_t place = 0; place < 8; ++place) {
            const std::size_t unit = kEvenOdd[place];
            if (unit >= count) continue;
            const Narrow& block = blocks[unit];
            std::memcpy(low[unit / 2] + 16 * (unit % 2), block.q, 16);
            std::memcpy(high[unit / 2] + 16 * (unit % 2), block.q + 16, 16);
            scales[place] = block.scale;
            totals[place] = block.low_sum + block.high_sum;
        }
    }
};

template <class V, class Type>
class NarrowStream {
  public:
    // Rows that are much shorter than eight units, or very long, are better left to tiles.
    static bool takes(std::size_t units) { return units >= 6 && units <= 8 * kEights; }

    // `rows` has one row, of a length that is taken.
    static void multiply(const Matrix& matrix, const RowsView& rows, std::size_t begin, std::size_t end, float* out) {
        const std::size_t units = rows.units();
        NarrowEight<V> row[kEights];
        for (std::size_t unit = 0; unit < units; unit += 8)
            row[unit / 8].read(rows.narrow(0) + unit, units - unit);
        const std::byte* weights = matrix.data + begin * units * Type::kBytes;
        const std::size_t whole = units / 8;
        for (std::size_t output = begin; output < end; ++output) {
            __m256 lanes = _mm256_setzero_ps();
            for (std::size_t i = 0; i < whole; ++i) {
                lanes = _mm256_add_ps(lanes, terms(weights, row[i]));
                weights += 8 * Type::kBytes;
            }
            if (units % 8 != 0) {
                // A lane is never −0, so adding the +0 of units that are not there changes none.
                std::byte last[8 * Type::kBytes] = {};
                std::memcpy(last, weights, units % 8 * Type::kBytes);
                lanes = _mm256_add_ps(lanes, terms(last, row[whole]));
                weights += units % 8 * Type::kBytes;
            }
            out[output] = fold(lanes);
        }
    }

  private:
    static constexpr std::size_t kEights = 64;

    static __m256 terms(const std::byte* from, const NarrowEight<V>& row) {
        constexpr std::size_t kTwo = 2 * Type::kBytes;
        const __m256i first = _mm256_hadd_epi32(pair(from, row, 0), pair(from + kTwo, row, 1));
        const __m256i second = _mm256_hadd_epi32(pair(from + 2 * kTwo, row, 2), pair(from + 3 * kTwo, row, 3));
        __m256i sums = _mm256_hadd_epi32(first, second);
        const __m256i totals = _mm256_load_si256(reinterpret_cast<const __m256i*>(row.totals));
        constexpr int kOffset = Type::template kOffset<V>;
        if constexpr (kOffset != 0)
            sums = _mm256_sub_epi32(sums, _mm256_mullo_epi32(totals, _mm256_set1_epi32(kOffset)));
        const __m256 row_scales = _mm256_load_ps(row.scales);
        __m256 scales;
        __m256 minimum_scales;
        Type::template scales<V>(from, scales, minimum_scales);
        const __m256 term = _mm256_mul_ps(_mm256_cvtepi32_ps(sums), _mm256_mul_ps(scales, row_scales));
        if constexpr (!Type::kMinimums) return term;
        return _mm256_add_ps(term,
                             _mm256_mul_ps(_mm256_cvtepi32_ps(totals), _mm256_mul_ps(minimum_scales, row_scales)));
    }

    // S of two units, each in four parts.
    static __m256i pair(const std::byte* from, const NarrowEight<V>& row, std::size_t i) {
        __m256i low;
        __m256i high;
        Type::template weights<V>(from, from + Type::kBytes, low, high);
        const __m256i* q_low = reinterpret_cast<const __m256i*>(row.low[i]);
        const __m256i* q_high = reinterpret_cast<const __m256i*>(row.high[i]);
        return Type::template dot<V>(low, _mm256_load_si256(q_low), high, _mm256_load_si256(q_high));
    }

    static float fold(__m256 lanes) {
        const __m256 two = _mm256_add_ps(lanes, _mm256_permute_ps(lanes, 0x0E));
        const __m256 one = _mm256_add_ps(two, _mm256_permute_ps(two, 0x01));
        const float y = _mm_cvtss_f32(_mm_add_ss(_mm256_castps256_ps128(one), _mm256_extractf128_ps(one, 1)));
        return y == y ? y : __builtin_bit_cast(float, 0x7FC00000U);
    }
};

template <class V>
struct NarrowBytes {
    using B = Bytes<V>;

    // 16 bytes of each.
    static __m256i load(const std::byte* even, const std::byte* odd) {
        return _mm256_inserti128_si256(_mm256_castsi128_si256(B::load16(even)), B::load16(odd), 1);
    }
    static void nibbles(const std::byte* even, const std::byte* odd, __m256i& low, __m256i& high) {
        const __m256i bytes = load(even, odd);
        low = B::low_nibbles(bytes);
        high = B::high_nibbles(bytes);
    }
    // Bit j of the words as 16 in column j.
    static void add_fifth_bits(const std::byte* even, const std::byte* odd, __m256i& low, __m256i& high) {
        const __m128i first = _mm_set1_epi32(static_cast<int>(B::word(even)));
        const __m128i second = _mm_set1_epi32(static_cast<int>(B::word(odd)));
        const __m256i words = _mm256_inserti128_si256(_mm256_castsi128_si256(first), second, 1);
        low = _mm256_or_si256(low, fifth(words, 0));
        high = _mm256_or_si256(high, fifth(words, 0x0202020202020202LL));
    }
    static __m256i look_up(const std::int8_t* table, __m256i nibbles) {
        return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(B::load16(table)), nibbles);
    }
    // The f16 at the start of each of eight units, by kEvenOdd.
    template <std::size_t kBytes>
    static __m256 halves(const std::byte* from) {
        __m128i made = _mm_loadu_si16(from);
        made = _mm_insert_epi16(made, half(from + 2 * kBytes), 1);
        made = _mm_insert_epi16(made, half(from + 4 * kBytes), 2);
        made = _mm_insert_epi16(made, half(from + 6 * kBytes), 3);
        made = _mm_insert_epi16(made, half(from + kBytes), 4);
        made = _mm_insert_epi16(made, half(from + 3 * kBytes), 5);
        made = _mm_insert_epi16(made, half(from + 5 * kBytes), 6);
        made = _mm_insert_epi16(made, half(from + 7 * kBytes), 7);
        return _mm256_cvtph_ps(made);
    }
    // Two f16 at the start of each.
    template <std::size_t kBytes>
    static void two_halves(const std::byte* from, __m256& first, __m256& second) {
        const __m128i even = words<2 * kBytes>(from);
        const __m128i odd = words<2 * kBytes>(from + kBytes);
        const __m128i low = _mm_set1_epi32(0xFFFF);
        first = _mm256_cvtph_ps(_mm_packus_epi32(_mm_and_si128(even, low), _mm_and_si128(odd, low)));
        second = _mm256_cvtph_ps(_mm_packus_epi32(_mm_srli_epi32(even, 16), _mm_srli_epi32(odd, 16)));
    }

  private:
    static __m256i fifth(__m256i words, long long byte) {
        const __m256i of_column = _mm256_add_epi8(_mm256_setr_epi64x(0, 0x0101010101010101LL, 0, 0x0101010101010101LL),
                                                  _mm256_set1_epi64x(byte));
        const __m256i bit = _mm256_set1_epi64x(static_cast<long long>(0x8040201008040201ULL));
        const __m256i bits = _mm256_and_si256(_mm256_shuffle_epi8(words, of_column), bit);
        return _mm256_and_si256(_mm256_cmpeq_epi8(bits, bit), _mm256_set1_epi8(16));
    }
    static int half(const std::byte* from) {
        std::uint16_t value;
        std::memcpy(&value, from, 2);
        return value;
    }
    template <std::size_t kStride>
    static __m128i words(const std::byte* from) {
        return B::pair(B::word(from), B::word(from + kStride), B::word(from + 2 * kStride),
                       B::word(from + 3 * kStride));
    }
};

// Types without minimums, whose weights are unsigned once they are raised by kOffset.
struct NarrowUnsigned {
    static constexpr bool kMinimums = false;
    template <class V>
    static __m256i dot(__m256i low, __m256i q_low, __m256i high, __m256i q_high) {
        return V::dot8(V::dot8(_mm256_setzero_si256(), low, q_low), high, q_high);
    }
};
// With signed weights, however the processor likes to multiply them.
struct NarrowSigned {
    static constexpr bool kMinimums = false;
    template <class V>
    static constexpr int kOffset = V::kSignedOffset;
    template <class V>
    static __m256i dot(__m256i low, __m256i q_low, __m256i high, __m256i q_high) {
        return V::signed_dot8(V::signed_dot8(_mm256_setzero_si256(), low, q_low), high, q_high);
    }
};

struct StreamQ4_0 : NarrowUnsigned {
    static constexpr std::size_t kBytes = 18;
    template <class V>
    static constexpr int kOffset = 8;
    template <class V>
    static void weights(const std::byte* even, const std::byte* odd, __m256i& low, __m256i& high) {
        NarrowBytes<V>::nibbles(even + 2, odd + 2, low, high);
    }
    template <class V>
    static void scales(const std::byte* from, __m256& scale, __m256&) {
        scale = NarrowBytes<V>::template halves<kBytes>(from);
    }
};

struct StreamQ4_1 : NarrowUnsigned {
    static constexpr std::size_t kBytes = 20;
    static constexpr bool kMinimums = true;
    template <class V>
    static constexpr int kOffset = 0;
    template <class V>
    static void weights(const std::byte* even, const std::byte* odd, __m256i& low, __m256i& high) {
        NarrowBytes<V>::nibbles(even + 4, odd + 4, low, high);
    }
    template <class V>
    static void scales(const std::byte* from, __m256& scale, __m256& minimum_scale) {
        NarrowBytes<V>::template two_halves<kBytes>(from, scale, minimum_scale);
    }
};

struct StreamQ5_0 : NarrowUnsigned {
    static constexpr std::size_t kBytes = 22;
    template <class V>
    static constexpr int kOffset = 16;
    template <class V>
    static void weights(const std::byte* even, const std::byte* odd, __m256i& low, __m256i& high) {
        NarrowBytes<V>::nibbles(even + 6, odd + 6, low, high);
        NarrowBytes<V>::add_fifth_bits(even + 2, odd + 2, low, high);
    }
    template <class V>
    static void scales(const std::byte* from, __m256& scale, __m256&) {
        scale = NarrowBytes<V>::template halves<kBytes>(from);
    }
};

struct StreamQ5_1 : NarrowUnsigned {
    static constexpr std::size_t kBytes = 24;
    static constexpr bool kMinimums = true;
    template <class V>
    static constexpr int kOffset = 0;
    template <class V>
    static void weights(const std::byte* even, const std::byte* odd, __m256i& low, __m256i& high) {
        NarrowBytes<V>::nibbles(even + 8, odd + 8, low, high);
        NarrowBytes<V>::add_fifth_bits(even + 4, odd + 4, low, high);
    }
    template <class V>
    static void scales(const std::byte* from, __m256& scale, __m256& minimum_scale) {
        NarrowBytes<V>::template two_halves<kBytes>(from, scale, minimum_scale);
    }
};

struct StreamQ8_0 : NarrowSigned {
    static constexpr std::size_t kBytes = 34;
    template <class V>
    static void weights(const std::byte* even, const std::byte* odd, __m256i& low, __m256i& high) {
        low = NarrowBytes<V>::load(even + 2, odd + 2);
        high = NarrowBytes<V>::load(even + 18, odd + 18);
    }
    template <class V>
    static void scales(const std::byte* from, __m256& scale, __m256&) {
        scale = NarrowBytes<V>::template halves<kBytes>(from);
    }
};

struct StreamIq4Nl : NarrowSigned {
    static constexpr std::size_t kBytes = 18;
    template <class V>
    static void weights(const std::byte* even, const std::byte* odd, __m256i& low, __m256i& high) {
        NarrowBytes<V>::nibbles(even + 2, odd + 2, low, high);
        low = NarrowBytes<V>::look_up(kIq4Table, low);
        high = NarrowBytes<V>::look_up(kIq4Table, high);
    }
    template <class V>
    static void scales(const std::byte* from, __m256& scale, __m256&) {
        scale = NarrowBytes<V>::template halves<kBytes>(from);
    }
};

struct StreamMxfp4 : NarrowUnsigned {
    static constexpr std::size_t kBytes = 17;
    template <class V>
    static constexpr int kOffset = 12;
    template <class V>
    static void weights(const std::byte* even, const std::byte* odd, __m256i& low, __m256i& high) {
        NarrowBytes<V>::nibbles(even + 1, odd + 1, low, high);
        low = NarrowBytes<V>::look_up(kFp4Table, low);
        high = NarrowBytes<V>::look_up(kFp4Table, high);
    }
    // e8m0h of the first byte of each.
    template <class V>
    static void scales(const std::byte* from, __m256& scale, __m256&) {
        std::uint64_t bytes = 0;
        for (std::size_t place = 0; place < 8; ++place)
            bytes |= std::uint64_t{static_cast<std::uint8_t>(from[kEvenOdd[place] * kBytes])} << (8 * place);
        const __m256i e = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(static_cast<long long>(bytes)));
        const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
        const __m256i denormal = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
        const __m256i is_normal = _mm256_cmpgt_epi32(e, _mm256_set1_epi32(1));
        scale = _mm256_castsi256_ps(_mm256_blendv_epi8(denormal, normal, is_normal));
    }
};

}  // namespace kvasir::portable
