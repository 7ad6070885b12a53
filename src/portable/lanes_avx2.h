// Eight 32-bit lanes: one per output row of a tile (see tiles.h). Included only where the compiler may use AVX2.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "portable/eight_avx.h"

namespace kvasir::portable {

struct Avx2 {
    static constexpr int kRows = 8;
    // A single row's sum is kept in a register across blocks: measured a quarter faster.
    static constexpr bool kSumInRegister = true;
    using Ints = __m256i;
    using Floats = __m256;
    using Eight = EightAvx<Avx2>;

    static Ints zero() { return _mm256_setzero_si256(); }
    static Ints all(int value) { return _mm256_set1_epi32(value); }
    static Floats all(float value) { return _mm256_set1_ps(value); }

    // One word for all lanes; a word or number of its own for each.
    static Ints broadcast(const void* from) {
        std::int32_t value;
        std::memcpy(&value, from, 4);
        return _mm256_set1_epi32(value);
    }
    static Ints load(const void* from) { return _mm256_loadu_si256(static_cast<const __m256i*>(from)); }
    static Floats load(const float* from) { return _mm256_loadu_ps(from); }
    static void store(float* to, Floats value) { _mm256_storeu_ps(to, value); }

    // Words 0..3 of the 16 bytes at `from`, and of those `stride` bytes further, for each row.
    static void load16(const std::byte* from, std::size_t stride, Ints* words) {
        const Ints rows0 = load_rows(from, stride);
        const Ints rows1 = load_rows(from + stride, stride);
        const Ints rows2 = load_rows(from + 2 * stride, stride);
        const Ints rows3 = load_rows(from + 3 * stride, stride);
        const Ints low01 = _mm256_unpacklo_epi32(rows0, rows1);
        const Ints high01 = _mm256_unpackhi_epi32(rows0, rows1);
        const Ints low23 = _mm256_unpacklo_epi32(rows2, rows3);
        const Ints high23 = _mm256_unpackhi_epi32(rows2, rows3);
        words[0] = _mm256_unpacklo_epi64(low01, low23);
        words[1] = _mm256_unpackhi_epi64(low01, low23);
        words[2] = _mm256_unpacklo_epi64(high01, high23);
        words[3] = _mm256_unpackhi_epi64(high01, high23);
    }
    // The f16 at `from` of each row, in the low half of its lane.
    static Ints load_halves(const std::byte* from, std::size_t stride) {
        alignas(16) std::uint16_t halves[kRows];
        for (int row = 0; row < kRows; ++row)
            std::memcpy(&halves[row], from + static_cast<std::size_t>(row) * stride, 2);
        return _mm256_cvtepu16_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(halves)));
    }
    static Ints load_words(const std::byte* from, std::size_t stride) {
        alignas(32) std::uint32_t words[kRows];
        for (int row = 0; row < kRows; ++row)
            std::memcpy(&words[row], from + static_cast<std::size_t>(row) * stride, 4);
        return _mm256_load_si256(reinterpret_cast<const __m256i*>(words));
    }
    // table[byte at `from`] of each row.
    static Floats load_table(const std::byte* from, std::size_t stride, const float* table) {
        alignas(32) float values[kRows];
        for (int row = 0; row < kRows; ++row)
            values[row] = table[static_cast<std::uint8_t>(from[static_cast<std::size_t>(row) * stride])];
        return _mm256_load_ps(values);
    }
    static Floats from_halves(Ints halves) {
        const Ints low = _mm256_and_si256(halves, _mm256_set1_epi32(0xFFFF));
        const Ints packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, low), 0x08);
        return _mm256_cvtph_ps(_mm256_castsi256_si128(packed));
    }

    static Ints both(Ints a, Ints b) { return _mm256_and_si256(a, b); }
    static Ints either(Ints a, Ints b) { return _mm256_or_si256(a, b); }
    template <int kBits>
    static Ints right(Ints a) {
        return kBits == 0 ? a : _mm256_srli_epi32(a, kBits);
    }
    template <int kBits>
    static Ints left(Ints a) {
        return kBits == 0 ? a : _mm256_slli_epi32(a, kBits);
    }
    template <int kBits>
    static Ints right_signed(Ints a) {
        return _mm256_srai_epi32(a, kBits);
    }
    template <int kBits>
    static Ints right_signed16(Ints a) {
        return _mm256_srai_epi16(a, kBits);
    }
    template <int kBits>
    static Ints left16(Ints a) {
        return _mm256_slli_epi16(a, kBits);
    }
    static Ints add(Ints a, Ints b) { return _mm256_add_epi32(a, b); }
    static Ints subtract(Ints a, Ints b) { return _mm256_sub_epi32(a, b); }
    static Ints subtract_bytes(Ints a, Ints b) { return _mm256_sub_epi8(a, b); }
    static Ints times(Ints a, Ints b) { return _mm256_mullo_epi32(a, b); }
    // Byte-wise table[nibble]; the table has 16 bytes, aligned.
    static Ints look_up(const std::int8_t* table, Ints nibbles) {
        return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(table))),
                                   nibbles);
    }

    // Signed bytes are multiplied as they are (kMax 255 says that they are signed).
    static constexpr int kSignedOffset = 0;
    static Ints from_signed(Ints bytes) { return bytes; }

    // A scale as `add_scaled` wants it, from an int16 in each lane: that number twice.
    static Ints make_scale(Ints value) {
        return _mm256_or_si256(_mm256_and_si256(value, _mm256_set1_epi32(0xFFFF)), _mm256_slli_epi32(value, 16));
    }
    // sum + scale × Σ weights · integers: `kWords` words of four columns, weights up to kMax, unsigned, and
    // integers(i), the signed bytes that word i is multiplied with.
    template <int kMax, int kWords, class Integers>
    static Ints add_scaled(Ints sum, const Ints* weights, Integers integers, Ints scale) {
        // Pairs of products are added in 16 bits as long as none can overflow.
        constexpr int kSafe = kMax > 127 ? 1 : 32767 / (2 * 127 * kMax);
        constexpr int kGroup = kSafe < kWords ? kSafe : kWords;
        for (int start = 0; start < kWords; start += kGroup) {
            Ints pairs = products<kMax>(weights[start], integers(start));
            for (int i = start + 1; i < start + kGroup && i < kWords; ++i)
                pairs = _mm256_add_epi16(pairs, products<kMax>(weights[i], integers(i)));
            sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, scale));
        }
        return sum;
    }
    template <int kMax, int kWords, class Integers>
    static Ints dot(const Ints* weights, Integers integers) {
        return add_scaled<kMax, kWords>(zero(), weights, integers, _mm256_set1_epi16(1));
    }
    // sum + Σ pairs of int16.
    static Ints add_pairs(Ints sum, Ints pairs, Ints integers) {
        return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, integers));
    }

    // Of 32 columns of one row (stream_avx.h): sum + Σ pairs of int16; sum + weights · integers.
    static __m256i add_pairs8(__m256i sum, __m256i pairs, __m256i integers) { return add_pairs(sum, pairs, integers); }
    static __m256i dot8(__m256i sum, __m256i weights, __m256i integers) {
        return add_pairs8(sum, _mm256_maddubs_epi16(weights, integers), _mm256_set1_epi16(1));
    }
    static __m256i signed_dot8(__m256i sum, __m256i weights, __m256i integers) {
        return dot8(sum, _mm256_abs_epi8(weights), _mm256_sign_epi8(integers, weights));
    }

    static Floats convert(Ints a) { return _mm256_cvtepi32_ps(a); }
    static Floats add(Floats a, Floats b) { return _mm256_add_ps(a, b); }
    static Floats subtract(Floats a, Floats b) { return _mm256_sub_ps(a, b); }
    static Floats times(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
    static void store_canonical(float* to, Floats value) {
        const Floats nan = _mm256_cmp_ps(value, value, _CMP_UNORD_Q);
        const Floats canonical = _mm256_castsi256_ps(_mm256_set1_epi32(0x7FC00000));
        _mm256_storeu_ps(to, _mm256_blendv_ps(value, canonical, nan));
    }

  private:
    // Two products a lane of 16 bits. Signed weights lend their sign to the integers, which are never −128.
    template <int kMax>
    static Ints products(Ints weights, Ints integers) {
        if constexpr (kMax <= 127) return _mm256_maddubs_epi16(weights, integers);
        return _mm256_maddubs_epi16(_mm256_abs_epi8(weights), _mm256_sign_epi8(integers, weights));
    }
    // 16 bytes each of rows 0 and 4.
    static Ints load_rows(const std::byte* from, std::size_t stride) {
        return _mm256_inserti128_si256(_mm256_castsi128_si256(load128(from)), load128(from + 4 * stride), 1);
    }
    static __m128i load128(const std::byte* from) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)); }
};

}  // namespace kvasir::portable
