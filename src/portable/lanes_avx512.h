// Sixteen 32-bit lanes: one per output row of a tile (see tiles.h). Included only where the compiler may use AVX-512.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "portable/eight_avx.h"

namespace kvasir::portable {

struct Avx512 {
    static constexpr int kRows = 16;
    // A single row's sum need not be kept in a register across blocks: measured a fifth slower.
    static constexpr bool kSumInRegister = false;
    using Ints = __m512i;
    using Floats = __m512;
    using Eight = EightAvx<Avx512>;

    static Ints zero() { return _mm512_setzero_si512(); }
    static Ints all(int value) { return _mm512_set1_epi32(value); }
    static Floats all(float value) { return _mm512_set1_ps(value); }

    // One word for all lanes; a word or number of its own for each.
    static Ints broadcast(const void* from) {
        std::int32_t value;
        std::memcpy(&value, from, 4);
        return _mm512_set1_epi32(value);
    }
    static Ints load(const void* from) { return _mm512_loadu_si512(from); }
    static Floats load(const float* from) { return _mm512_loadu_ps(from); }
    static void store(float* to, Floats value) { _mm512_storeu_ps(to, value); }

    // Words 0..3 of the 16 bytes at `from`, and of those `stride` bytes further, for each row.
    static void load16(const std::byte* from, std::size_t stride, Ints* words) {
        const Ints rows0 = load_rows(from, stride);
        const Ints rows1 = load_rows(from + stride, stride);
        const Ints rows2 = load_rows(from + 2 * stride, stride);
        const Ints rows3 = load_rows(from + 3 * stride, stride);
        const Ints low01 = _mm512_unpacklo_epi32(rows0, rows1);
        const Ints high01 = _mm512_unpackhi_epi32(rows0, rows1);
        const Ints low23 = _mm512_unpacklo_epi32(rows2, rows3);
        const Ints high23 = _mm512_unpackhi_epi32(rows2, rows3);
        words[0] = _mm512_unpacklo_epi64(low01, low23);
        words[1] = _mm512_unpackhi_epi64(low01, low23);
        words[2] = _mm512_unpacklo_epi64(high01, high23);
        words[3] = _mm512_unpackhi_epi64(high01, high23);
    }
    // The f16 at `from` of each row, in the low half of its lane.
    static Ints load_halves(const std::byte* from, std::size_t stride) {
        alignas(32) std::uint16_t halves[kRows];
        for (int row = 0; row < kRows; ++row)
            std::memcpy(&halves[row], from + static_cast<std::size_t>(row) * stride, 2);
        return _mm512_cvtepu16_epi32(_mm256_load_si256(reinterpret_cast<const __m256i*>(halves)));
    }
    static Ints load_words(const std::byte* from, std::size_t stride) {
        alignas(64) std::uint32_t words[kRows];
        for (int row = 0; row < kRows; ++row)
            std::memcpy(&words[row], from + static_cast<std::size_t>(row) * stride, 4);
        return _mm512_load_si512(words);
    }
    // table[byte at `from`] of each row.
    static Floats load_table(const std::byte* from, std::size_t stride, const float* table) {
        alignas(64) float values[kRows];
        for (int row = 0; row < kRows; ++row)
            values[row] = table[static_cast<std::uint8_t>(from[static_cast<std::size_t>(row) * stride])];
        return _mm512_load_ps(values);
    }
    static Floats from_halves(Ints halves) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(halves)); }

    static Ints both(Ints a, Ints b) { return _mm512_and_si512(a, b); }
    static Ints either(Ints a, Ints b) { return _mm512_or_si512(a, b); }
    template <int kBits>
    static Ints right(Ints a) {
        return kBits == 0 ? a : _mm512_srli_epi32(a, kBits);
    }
    template <int kBits>
    static Ints left(Ints a) {
        return kBits == 0 ? a : _mm512_slli_epi32(a, kBits);
    }
    template <int kBits>
    static Ints right_signed(Ints a) {
        return _mm512_srai_epi32(a, kBits);
    }
    template <int kBits>
    static Ints right_signed16(Ints a) {
        return _mm512_srai_epi16(a, kBits);
    }
    template <int kBits>
    static Ints left16(Ints a) {
        return _mm512_slli_epi16(a, kBits);
    }
    static Ints add(Ints a, Ints b) { return _mm512_add_epi32(a, b); }
    static Ints subtract(Ints a, Ints b) { return _mm512_sub_epi32(a, b); }
    static Ints subtract_bytes(Ints a, Ints b) { return _mm512_sub_epi8(a, b); }
    static Ints times(Ints a, Ints b) { return _mm512_mullo_epi32(a, b); }
    // Byte-wise table[nibble]; the table has 16 bytes, aligned.
    static Ints look_up(const std::int8_t* table, Ints nibbles) {
        return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_load_si128(reinterpret_cast<const __m128i*>(table))),
                                   nibbles);
    }

    // Signed bytes are multiplied with 128 added, which the caller takes off again.
    static constexpr int kSignedOffset = 128;
    static Ints from_signed(Ints bytes) { return _mm512_xor_si512(bytes, _mm512_set1_epi8(-128)); }

    // A scale as `add_scaled` wants it, from an int16 in each lane.
    static Ints make_scale(Ints value) { return value; }
    // sum + scale × Σ weights · integers: `kWords` words of four columns, weights up to kMax, unsigned, and
    // integers(i), the signed bytes that word i is multiplied with.
    template <int kMax, int kWords, class Integers>
    static Ints add_scaled(Ints sum, const Ints* weights, Integers integers, Ints scale) {
        return _mm512_add_epi32(sum, _mm512_mullo_epi32(dot<kMax, kWords>(weights, integers), scale));
    }
    template <int kMax, int kWords, class Integers>
    static Ints dot(const Ints* weights, Integers integers) {
        Ints sum = _mm512_setzero_si512();
        for (int i = 0; i < kWords; ++i)
            sum = _mm512_dpbusd_epi32(sum, weights[i], integers(i));
        return sum;
    }
    // sum + Σ pairs of int16.
    static Ints add_pairs(Ints sum, Ints pairs, Ints integers) { return _mm512_dpwssd_epi32(sum, pairs, integers); }

    // Of 32 columns of one row (stream_avx.h): sum + Σ pairs of int16; sum + weights · integers.
    static __m256i add_pairs8(__m256i sum, __m256i pairs, __m256i integers) {
        return _mm256_dpwssd_epi32(sum, pairs, integers);
    }
    static __m256i dot8(__m256i sum, __m256i weights, __m256i integers) {
        return _mm256_dpbusd_epi32(sum, weights, integers);
    }
    // Signed weights, raised by kSignedOffset.
    static __m256i signed_dot8(__m256i sum, __m256i weights, __m256i integers) {
        return dot8(sum, _mm256_xor_si256(weights, _mm256_set1_epi8(-128)), integers);
    }

    static Floats convert(Ints a) { return _mm512_cvtepi32_ps(a); }
    static Floats add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
    static Floats subtract(Floats a, Floats b) { return _mm512_sub_ps(a, b); }
    static Floats times(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
    static void store_canonical(float* to, Floats value) {
        const __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
        const Ints canonical = _mm512_mask_mov_epi32(_mm512_castps_si512(value), nan, _mm512_set1_epi32(0x7FC00000));
        _mm512_storeu_si512(to, canonical);
    }

  private:
    // 16 bytes each of rows 0, 4, 8 and 12.
    static Ints load_rows(const std::byte* from, std::size_t stride) {
        Ints rows = _mm512_castsi128_si512(load128(from));
        rows = _mm512_inserti32x4(rows, load128(from + 4 * stride), 1);
        rows = _mm512_inserti32x4(rows, load128(from + 8 * stride), 2);
        return _mm512_inserti32x4(rows, load128(from + 12 * stride), 3);
    }
    static __m128i load128(const std::byte* from) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)); }
};

}  // namespace kvasir::portable
