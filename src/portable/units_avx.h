// Units of 256 columns in vectors of signed bytes, for types whose weights come from grids (IQ1 to IQ3) or digits (TQ).
#pragma once

#include <immintrin.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "portable/grids.h"
#include "portable/stream_avx.h"

namespace kvasir::portable {

// Of a sign byte: −1 for each bit that is set, 1 for the others.
struct SignBytes {
    std::uint64_t of[256];
};
inline constexpr SignBytes kSigns = [] {
    SignBytes bytes{};
    for (unsigned signs = 0; signs < 256; ++signs) {
        for (unsigned k = 0; k < 8; ++k)
            bytes.of[signs] |= std::uint64_t{(signs >> k & 1U) != 0 ? 255U : 1U} << (8 * k);
    }
    return bytes;
}();
// Of seven bits, the eighth being their parity.
inline constexpr SignBytes kSignsOfSeven = [] {
    SignBytes bytes{};
    for (unsigned seven = 0; seven < 128; ++seven)
        bytes.of[seven] = kSigns.of[seven | (static_cast<unsigned>(std::popcount(seven)) & 1U) << 7];
    return bytes;
}();

// Weight j is scale · c(j >> 4) · ±magnitude; 32 columns to a vector.
template <class V>
struct UnitVectors {
    __m256i magnitudes[8];
    __m256i signs[8];  // whose sign the magnitudes take; where it is 0, so is the magnitude
    __m256i c;         // c(0) c(2) … in the low half, c(1) c(3) … in the high half
    float scale;

    void set_signed(std::size_t i, __m256i weights) {
        magnitudes[i] = _mm256_abs_epi8(weights);
        signs[i] = weights;
    }
    // Each c is a byte.
    void set_scales(std::uint64_t even, std::uint64_t odd) {
        c = _mm256_cvtepu8_epi16(_mm_set_epi64x(static_cast<long long>(odd), static_cast<long long>(even)));
    }

    // S in parts. The integers, which are never −128, take the signs.
    __m256i times(const std::int8_t* q) const {
        __m256i even = _mm256_setzero_si256();
        __m256i odd = _mm256_setzero_si256();
        const auto two = [&]<int kFirst>() {
            even = V::add_pairs8(even, products(q, kFirst), Bytes<V>::template spread<kFirst>(c));
            odd = V::add_pairs8(odd, products(q, kFirst + 1), Bytes<V>::template spread<kFirst + 1>(c));
        };
        two.template operator()<0>();
        two.template operator()<2>();
        two.template operator()<4>();
        two.template operator()<6>();
        return _mm256_add_epi32(even, odd);
    }

  private:
    __m256i products(const std::int8_t* q, std::size_t i) const {
        return _mm256_maddubs_epi16(magnitudes[i], _mm256_sign_epi8(Bytes<V>::load(q + 32 * i), signs[i]));
    }
};

// Reading blocks and grids.
template <class V>
struct GridBytes {
    static unsigned byte(const std::byte* block, std::size_t at) { return static_cast<std::uint8_t>(block[at]); }
    template <class T>
    static T number(const std::byte* block, std::size_t at) {
        T value;
        std::memcpy(&value, block + at, sizeof value);
        return value;
    }
    static float half(unsigned bits) { return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(static_cast<int>(bits)))); }
    static float half_at(const std::byte* block, std::size_t at) { return half(number<std::uint16_t>(block, at)); }

    static __m256i four(std::uint64_t a, std::uint64_t b, std::uint64_t c, std::uint64_t d) {
        return _mm256_set_epi64x(static_cast<long long>(d), static_cast<long long>(c), static_cast<long long>(b),
                                 static_cast<long long>(a));
    }
    // of(l) for the four eights of a vector.
    template <class Of>
    static __m256i fours(Of of) {
        return four(of(0U), of(1U), of(2U), of(3U));
    }
    static std::uint64_t eight(const std::int8_t* grid, std::size_t entry) {
        std::uint64_t values;
        std::memcpy(&values, grid + 8 * entry, 8);
        return values;
    }
    static std::uint64_t two_fours(const std::int8_t* grid, std::size_t first, std::size_t second) {
        std::uint32_t low;
        std::uint32_t high;
        std::memcpy(&low, grid + 4 * first, 4);
        std::memcpy(&high, grid + 4 * second, 4);
        return low | std::uint64_t{high} << 32;
    }
    static __m256i signs_of_sevens(std::uint32_t b) {
        return fours([&](unsigned l) { return kSignsOfSeven.of[b >> (7 * l) & 127]; });
    }
    // 2c + 1 for every byte.
    static std::uint64_t odd_numbers(std::uint64_t c) { return (c << 1) + 0x0101010101010101U; }
    // The two nibbles of each of eight bytes are the scales of 16 columns.
    static void set_nibble_scales(const std::byte* from, UnitVectors<V>& unit) {
        constexpr std::uint64_t kNibbles = 0x0F0F0F0F0F0F0F0FU;
        const auto bytes = number<std::uint64_t>(from, 0);
        unit.set_scales(odd_numbers(bytes & kNibbles), odd_numbers(bytes >> 4 & kNibbles));
    }
    static void set_wide_scales(std::uint64_t c, UnitVectors<V>& unit) {
        unit.set_scales(odd_numbers(c), odd_numbers(c));
    }
};

// Loops over groups are unrolled, so that vectors need not go through memory: measured a fifth faster.
//
// Each has decode: a block, the grid that tables() gives, the unit. All functions are templates: see kernel_table.h.
struct UnitsIq2Xxs {
    static constexpr std::size_t kBytes = 66;
    template <class V>
    static const std::int8_t* tables() {
        return grid_of(GridName::iq2xxs).values;
    }
    template <class V>
    static void decode(const std::byte* block, const std::int8_t* grid, UnitVectors<V>& unit) {
        using G = GridBytes<V>;
        std::uint64_t c = 0;
#pragma GCC unroll 8
        for (std::size_t g = 0; g < 8; ++g) {
            const auto a = G::template number<std::uint32_t>(block, 2 + 8 * g);
            const auto b = G::template number<std::uint32_t>(block, 6 + 8 * g);
            c |= std::uint64_t{b >> 28} << (8 * g);
            unit.magnitudes[g] = G::fours([&](unsigned l) { return G::eight(grid, a >> (8 * l) & 255); });
            unit.signs[g] = G::signs_of_sevens(b);
        }
        G::set_wide_scales(c, unit);
        unit.scale = G::half_at(block, 0) * 0.125F;
    }
};

struct UnitsIq2Xs {
    static constexpr std::size_t kBytes = 74;
    template <class V>
    static const std::int8_t* tables() {
        return grid_of(GridName::iq2xs).values;
    }
    template <class V>
    static void decode(const std::byte* block, const std::int8_t* grid, UnitVectors<V>& unit) {
        using G = GridBytes<V>;
#pragma GCC unroll 8
        for (std::size_t g = 0; g < 8; ++g) {
            const auto a = G::template number<std::uint64_t>(block, 2 + 8 * g);
            unit.magnitudes[g] = G::fours([&](unsigned l) { return G::eight(grid, a >> (16 * l) & 511); });
            unit.signs[g] = G::fours([&](unsigned l) { return kSignsOfSeven.of[a >> (16 * l + 9) & 127]; });
        }
        G::set_nibble_scales(block + 66, unit);
        unit.scale = G::half_at(block, 0) * 0.125F;
    }
};

struct UnitsIq2S {
    static constexpr std::size_t kBytes = 82;
    template <class V>
    static const std::int8_t* tables() {
        return grid_of(GridName::iq2s).values;
    }
    template <class V>
    static void decode(const std::byte* block, const std::int8_t* grid, UnitVectors<V>& unit) {
        using G = GridBytes<V>;
#pragma GCC unroll 8
        for (std::size_t g = 0; g < 8; ++g) {
            const unsigned high = G::byte(block, 66 + g);
            const auto low = G::template number<std::uint32_t>(block, 2 + 4 * g);
            const auto signs = G::template number<std::uint32_t>(block, 34 + 4 * g);
            unit.magnitudes[g] = G::fours(
                [&](unsigned l) { return G::eight(grid, (low >> (8 * l) & 255) | (high << (8 - 2 * l) & 768)); });
            unit.signs[g] = G::fours([&](unsigned l) { return kSigns.of[signs >> (8 * l) & 255]; });
        }
        G::set_nibble_scales(block + 74, unit);
        unit.scale = G::half_at(block, 0) * 0.125F;
    }
};

struct UnitsIq3Xxs {
    static constexpr std::size_t kBytes = 98;
    template <class V>
    static const std::int8_t* tables() {
        return grid_of(GridName::iq3xxs).values;
    }
    template <class V>
    static void decode(const std::byte* block, const std::int8_t* grid, UnitVectors<V>& unit) {
        using G = GridBytes<V>;
        std::uint64_t c = 0;
#pragma GCC unroll 8
        for (std::size_t g = 0; g < 8; ++g) {
            const auto b = G::template number<std::uint32_t>(block, 66 + 4 * g);
            const auto a = G::template number<std::uint64_t>(block, 2 + 8 * g);
            c |= std::uint64_t{b >> 28} << (8 * g);
            unit.magnitudes[g] =
                G::fours([&](unsigned l) { return G::two_fours(grid, a >> (16 * l) & 255, a >> (16 * l + 8) & 255); });
            unit.signs[g] = G::signs_of_sevens(b);
        }
        G::set_wide_scales(c, unit);
        unit.scale = G::half_at(block, 0) * 0.25F;
    }
};

struct UnitsIq3S {
    static constexpr std::size_t kBytes = 110;
    template <class V>
    static const std::int8_t* tables() {
        return grid_of(GridName::iq3s).values;
    }
    template <class V>
    static void decode(const std::byte* block, const std::int8_t* grid, UnitVectors<V>& unit) {
        using G = GridBytes<V>;
        std::uint64_t c = 0;
#pragma GCC unroll 8
        for (std::size_t g = 0; g < 8; ++g) {
            const unsigned high = G::byte(block, 66 + g);
            const auto a = G::template number<std::uint64_t>(block, 2 + 8 * g);
            const auto signs = G::template number<std::uint32_t>(block, 74 + 4 * g);
            c |= std::uint64_t{G::byte(block, 106 + g / 2) >> (4 * (g % 2)) & 15} << (8 * g);
            unit.magnitudes[g] = G::fours([&](unsigned l) {
                return G::two_fours(grid, (a >> (16 * l) & 255) | (high << (8 - 2 * l) & 256),
                                    (a >> (16 * l + 8) & 255) | (high << (7 - 2 * l) & 256));
            });
            unit.signs[g] = G::fours([&](unsigned l) { return kSigns.of[signs >> (8 * l) & 255]; });
        }
        G::set_wide_scales(c, unit);
        unit.scale = G::half_at(block, 0);
    }
};

// 8·iq1, and t, which is −1 or 1, in every byte.
template <class V>
__m256i iq1_weights(__m256i values, __m256i t) {
    return _mm256_add_epi8(_mm256_slli_epi16(_mm256_and_si256(values, _mm256_set1_epi8(31)), 3), t);
}

struct UnitsIq1S {
    static constexpr std::size_t kBytes = 50;
    template <class V>
    static const std::int8_t* tables() {
        return grid_of(GridName::iq1).values;
    }
    template <class V>
    static void decode(const std::byte* block, const std::int8_t* grid, UnitVectors<V>& unit) {
        using G = GridBytes<V>;
        std::uint64_t c = 0;
#pragma GCC unroll 8
        for (std::size_t g = 0; g < 8; ++g) {
            const unsigned a = G::template number<std::uint16_t>(block, 34 + 2 * g);
            const auto low = G::template number<std::uint32_t>(block, 2 + 4 * g);
            c |= std::uint64_t{a >> 12 & 7} << (8 * g);
            const __m256i values =
                G::fours([&](unsigned l) { return G::eight(grid, (low >> (8 * l) & 255) | (a >> (3 * l) & 7) << 8); });
            const __m256i t = _mm256_set1_epi8(static_cast<char>(a >> 15 != 0 ? -1 : 1));
            unit.set_signed(g, iq1_weights<V>(values, t));
        }
        G::set_wide_scales(c, unit);
        unit.scale = G::half_at(block, 0) * 0.125F;
    }
};

struct UnitsIq1M {
    static constexpr std::size_t kBytes = 56;
    template <class V>
    static const std::int8_t* tables() {
        return grid_of(GridName::iq1).values;
    }
    template <class V>
    static void decode(const std::byte* block, const std::int8_t* grid, UnitVectors<V>& unit) {
        using G = GridBytes<V>;
        const auto numbers = G::template number<std::uint64_t>(block, 48);
        std::uint64_t even = 0;
        std::uint64_t odd = 0;
        unsigned half = 0;
#pragma GCC unroll 8
        for (std::size_t g = 0; g < 8; ++g) {
            const std::uint64_t scales = numbers >> (16 * (g / 2) + 6 * (g % 2));
            even |= (scales & 7) << (8 * g);
            odd |= (scales >> 3 & 7) << (8 * g);
            half |= static_cast<unsigned>(numbers >> (16 * (g / 2) + 12) & 15) << (4 * (g / 2));
            const auto low = G::template number<std::uint32_t>(block, 4 * g);
            const unsigned x = G::template number<std::uint16_t>(block, 32 + 2 * g);
            const __m256i values =
                G::fours([&](unsigned l) { return G::eight(grid, (low >> (8 * l) & 255) | (x >> (4 * l) & 7) << 8); });
            const __m256i t = G::fours([&](unsigned l) { return kSigns.of[(x >> (4 * l + 3) & 1) * 255]; });
            unit.set_signed(g, iq1_weights<V>(values, t));
        }
        unit.set_scales(G::odd_numbers(even), G::odd_numbers(odd));
        unit.scale = G::half(half) * 0.125F;
    }
};

struct UnitsTq2_0 {
    static constexpr std::size_t kBytes = 66;
    template <class V>
    static const std::int8_t* tables() {
        return nullptr;
    }
    template <class V>
    static void decode(const std::byte* block, const std::int8_t*, UnitVectors<V>& unit) {
        using B = Bytes<V>;
        const __m256i one = _mm256_set1_epi8(1);
        const auto half = [&]<int kHalf>() {
            const __m256i two = B::load(block + 32 * kHalf);
            unit.set_signed(4 * kHalf, _mm256_sub_epi8(B::template bits<0>(two, 3), one));
            unit.set_signed(4 * kHalf + 1, _mm256_sub_epi8(B::template bits<-2>(two, 3), one));
            unit.set_signed(4 * kHalf + 2, _mm256_sub_epi8(B::template bits<-4>(two, 3), one));
            unit.set_signed(4 * kHalf + 3, _mm256_sub_epi8(B::template bits<-6>(two, 3), one));
        };
        half.template operator()<0>();
        half.template operator()<1>();
        unit.c = _mm256_set1_epi16(1);
        unit.scale = GridBytes<V>::half_at(block, 64);
    }
};

struct UnitsTq1_0 {
    static constexpr std::size_t kBytes = 54;
    template <class V>
    static const std::int8_t* tables() {
        return nullptr;
    }
    template <class V>
    static void decode(const std::byte* block, const std::int8_t*, UnitVectors<V>& unit) {
        using B = Bytes<V>;
        __m256i bytes = B::load(block);
        for (std::size_t k = 0; k < 5; ++k) {
            unit.set_signed(k, top_digits<V>(bytes));
            bytes = times_3<V>(bytes);
        }
        // 16 bytes with five digits each, two digits to a vector.
        __m256i pair = _mm256_broadcastsi128_si256(B::load16(block + 32));
        pair = _mm256_blend_epi32(pair, times_3<V>(pair), 0xF0);
        unit.set_signed(5, top_digits<V>(pair));
        pair = times_3<V>(times_3<V>(pair));
        unit.set_signed(6, top_digits<V>(pair));
        pair = times_3<V>(times_3<V>(pair));
        // The fifth, and four bytes with four digits each.
        const __m256i four = _mm256_set1_epi32(static_cast<int>(B::word(block + 48)));
        const __m256i by_3 = times_3<V>(four);
        const __m256i by_9 = times_3<V>(by_3);
        const __m256i first = _mm256_blend_epi32(four, by_3, 0x20);
        const __m256i second = _mm256_blend_epi32(by_9, times_3<V>(by_9), 0x80);
        const __m256i digits = _mm256_blend_epi32(first, second, 0xC0);
        unit.set_signed(7, top_digits<V>(_mm256_blend_epi32(pair, digits, 0xF0)));
        unit.c = _mm256_set1_epi16(1);
        unit.scale = GridBytes<V>::half_at(block, 52);
    }

  private:
    template <class V>
    static __m256i times_3(__m256i bytes) {
        return _mm256_add_epi8(bytes, _mm256_add_epi8(bytes, bytes));
    }
    // The top digit of base 3, less 1: it is 1 from 86 (3·86 ≥ 256) and 2 from 171 on.
    template <class V>
    static __m256i top_digits(__m256i bytes) {
        const __m256i one = _mm256_cmpeq_epi8(_mm256_max_epu8(bytes, _mm256_set1_epi8(86)), bytes);
        const __m256i two = _mm256_cmpeq_epi8(_mm256_max_epu8(bytes, _mm256_set1_epi8(static_cast<char>(171))), bytes);
        return _mm256_sub_epi8(_mm256_sub_epi8(_mm256_set1_epi8(-1), one), two);
    }
};

}  // namespace kvasir::portable
