// One row of activations times weights, bound by memory: the blocks of all rows of weights are read front to back, as
// they lie, each whole before the next. What the processor's prefetchers make of the order of addresses decides: the
// same loads from sixteen rows in turn (tiles.h) were measured at half the speed.
//
// The terms of eight units are made at once; they may belong to several output rows, so rows of one unit cost no more
// than long ones. A V gives what differs: V::add_pairs8, V::dot8 and so on. For AVX2 and what is above it.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "portable/prepared.h"
#include "portable/unpack_narrow.h"

namespace kvasir::portable {

// What a batch of eight units collects, unit by unit; the last that came is the highest.
template <class V>
struct Batch {
    __m256i sums[8];      // of each unit, S in parts
    __m128i minimums[8];  // M in parts, for types that have it by unit
    __m128i scales;       // the halves d (or bytes), shifted in from above
    __m128i minimum_scales;

    // The low two bytes of `halves`.
    void push_scale(__m128i halves) { scales = _mm_alignr_epi8(halves, scales, 2); }
    void push_minimum_scale(__m128i halves) { minimum_scales = _mm_alignr_epi8(halves, minimum_scales, 2); }
    void push_scale(const std::byte* half) { push_scale(_mm_loadu_si16(half)); }
};

template <class V, class Type>
class Stream {
  public:
    // Whether a row of so many units can be streamed.
    static bool takes(std::size_t units) { return units <= kTerms; }

    // `rows` has one row, of a length that is taken.
    static void multiply(const Matrix& matrix, const RowsView& rows, std::size_t begin, std::size_t end, float* out) {
        const std::size_t units = rows.units();
        typename Type::template Row<V> row(rows, units);
        const std::byte* weights = matrix.data + begin * units * Type::kBytes;
        const std::size_t outputs_at_once = kTerms / units;
        alignas(32) float terms[kTerms + 8];
        for (std::size_t output = begin; output < end; output += outputs_at_once) {
            const std::size_t count = end - output < outputs_at_once ? end - output : outputs_at_once;
            make_terms(weights, row, units, count * units, terms);
            weights += count * units * Type::kBytes;
            for (std::size_t i = 0; i < count; ++i)
                out[output + i] = fold(terms + i * units, units);
        }
    }

  private:
    // Terms kept before they are added up: some output rows'.
    static constexpr std::size_t kTerms = 1024;

    template <class Row>
    static void make_terms(const std::byte* weights, const Row& row, std::size_t units, std::size_t count,
                           float* terms) {
        std::size_t unit = 0;  // of its row
        for (std::size_t first = 0; first < count; first += 8) {
            const std::size_t some = count - first < 8 ? count - first : 8;
            const std::size_t start = unit;
            Batch<V> batch;
            batch.scales = _mm_setzero_si128();
            batch.minimum_scales = _mm_setzero_si128();
            // Not unrolled: the prefetchers follow addresses that rise.
#pragma GCC unroll 1
            for (std::size_t i = 0; i < some; ++i) {
                Type::template add<V>(weights, row, unit, i, batch);
                weights += Type::kBytes;
                ++unit;
                if (unit == units) unit = 0;
            }
            for (std::size_t i = some; i < 8; ++i) {
                batch.sums[i] = _mm256_setzero_si256();
                batch.minimums[i] = _mm_setzero_si128();
                batch.push_scale(_mm_setzero_si128());
                batch.push_minimum_scale(_mm_setzero_si128());
            }
            _mm256_storeu_ps(terms + first, Type::template terms<V>(batch, row, start));
        }
    }

    // Section 4's lanes and their fold. A lane is never −0, so adding +0 changes none.
    static float fold(const float* terms, std::size_t units) {
        alignas(32) static constexpr std::int32_t kMask[16] = {-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0};
        __m256 lanes = _mm256_setzero_ps();
        const std::size_t whole = units & ~std::size_t{7};
        for (std::size_t unit = 0; unit < whole; unit += 8)
            lanes = _mm256_add_ps(lanes, _mm256_loadu_ps(terms + unit));
        if (whole != units) {
            const auto* mask = reinterpret_cast<const float*>(kMask + 8 - (units - whole));
            lanes = _mm256_add_ps(lanes, _mm256_and_ps(_mm256_loadu_ps(terms + whole), _mm256_loadu_ps(mask)));
        }
        const __m128 four = _mm_add_ps(_mm256_castps256_ps128(lanes), _mm256_extractf128_ps(lanes, 1));
        const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
        const float y = _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
        return y == y ? y : __builtin_bit_cast(float, 0x7FC00000U);
    }
};

// Sums across lanes.
template <class V>
struct Across {
    // Of each of eight vectors.
    static __m256i eight(const __m256i* v) {
        const __m256i first = _mm256_hadd_epi32(_mm256_hadd_epi32(v[0], v[1]), _mm256_hadd_epi32(v[2], v[3]));
        const __m256i second = _mm256_hadd_epi32(_mm256_hadd_epi32(v[4], v[5]), _mm256_hadd_epi32(v[6], v[7]));
        return _mm256_add_epi32(_mm256_permute2x128_si256(first, second, 0x20),
                                _mm256_permute2x128_si256(first, second, 0x31));
    }
    static __m256i eight(const __m128i* v) {
        const __m256i first = _mm256_hadd_epi32(both(v[0], v[4]), both(v[1], v[5]));
        return _mm256_hadd_epi32(first, _mm256_hadd_epi32(both(v[2], v[6]), both(v[3], v[7])));
    }
    static __m128i halves(__m256i v) {
        return _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    }

  private:
    static __m256i both(__m128i low, __m128i high) {
        return _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
    }
};

// What the types below have in common: bytes, nibbles, and the scales of columns.
template <class V>
struct Bytes {
    static __m256i load(const void* from) { return _mm256_loadu_si256(static_cast<const __m256i*>(from)); }
    static __m128i load16(const void* from) { return _mm_loadu_si128(static_cast<const __m128i*>(from)); }
    static std::uint32_t word(const std::byte* from) {
        std::uint32_t value;
        std::memcpy(&value, from, 4);
        return value;
    }
    static __m256i low_nibbles(__m256i bytes) { return _mm256_and_si256(bytes, _mm256_set1_epi8(15)); }
    static __m256i high_nibbles(__m256i bytes) { return low_nibbles(_mm256_srli_epi16(bytes, 4)); }
    // Shifted left, or right where kLeft is negative, and all bits but `mask` cleared.
    template <int kLeft>
    static __m256i bits(__m256i bytes, int mask) {
        __m256i shifted = bytes;
        if constexpr (kLeft > 0) shifted = _mm256_slli_epi16(bytes, kLeft);
        if constexpr (kLeft < 0) shifted = _mm256_srli_epi16(bytes, -kLeft);
        return _mm256_and_si256(shifted, _mm256_set1_epi8(static_cast<char>(mask)));
    }
    // Number kIndex of each half, in all of that half's 16-bit lanes.
    template <int kIndex>
    static __m256i spread(__m256i numbers) {
        return _mm256_shuffle_epi8(numbers, _mm256_set1_epi16(static_cast<short>(2 * kIndex | (2 * kIndex + 1) << 8)));
    }
    // 16 bytes as numbers: those of even index in the low half, of odd index in the high one.
    static __m128i evens_odds(__m128i bytes) {
        return _mm_shuffle_epi8(bytes, _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15));
    }
    // 16 bytes in the order of Wide::sums16.
    static __m128i as_sums(__m128i bytes) {
        return _mm_shuffle_epi8(bytes, _mm_setr_epi8(0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15));
    }
    static __m128i pair(std::uint32_t first, std::uint32_t second, std::uint32_t third, std::uint32_t fourth) {
        return _mm_setr_epi32(static_cast<int>(first), static_cast<int>(second), static_cast<int>(third),
                              static_cast<int>(fourth));
    }
    static __m256i sums16(const Wide& block) { return load(block.sums16); }
    // sum + scale × (weights · q), 32 columns.
    static __m256i add(__m256i sum, __m256i weights, const std::int8_t* q, __m256i scales) {
        return V::add_pairs8(sum, _mm256_maddubs_epi16(weights, load(q)), scales);
    }
};

// The row for 256 columns; scales go round, so that eight may be read from any unit on.
template <class V>
struct WideRow {
    const Wide* blocks;
    float scales[1024 + 8];

    WideRow(const RowsView& rows, std::size_t units) : blocks(rows.wide(0)) {
        for (std::size_t i = 0, unit = 0; i < units + 8; ++i) {
            scales[i] = blocks[unit].scale;
            unit = unit + 1 == units ? 0 : unit + 1;
        }
    }
};

struct StreamWide {
    template <class V>
    using Row = WideRow<V>;

  protected:
    template <class V>
    static __m256 scaled(__m256i sums, __m128i halves, __m256 row_scales) {
        return _mm256_mul_ps(_mm256_cvtepi32_ps(sums), _mm256_mul_ps(_mm256_cvtph_ps(halves), row_scales));
    }
    template <class V>
    static __m256 without_minimums(const Batch<V>& batch, const WideRow<V>& row, std::size_t unit) {
        return scaled<V>(Across<V>::eight(batch.sums), batch.scales, _mm256_loadu_ps(row.scales + unit));
    }
    template <class V>
    static __m256 with_minimums(const Batch<V>& batch, const WideRow<V>& row, std::size_t unit) {
        const __m256i minimums = Across<V>::eight(batch.minimums);
        return _mm256_sub_ps(without_minimums(batch, row, unit),
                             scaled<V>(minimums, batch.minimum_scales, _mm256_loadu_ps(row.scales + unit)));
    }
};

// Scales and minimums of Q4_K and Q5_K.
template <class V>
struct StreamScales8 {
    __m256i scales;  // eight numbers, in both halves

    StreamScales8(const std::byte* from, const Wide& block, std::size_t i, Batch<V>& batch) {
        using B = Bytes<V>;
        const std::uint32_t first = B::word(from + 4);
        const std::uint32_t second = B::word(from + 8);
        const std::uint32_t third = B::word(from + 12);
        const std::uint32_t low_scales = first & 0x3F3F3F3FU;
        const std::uint32_t high_scales = (third & 0x0F0F0F0FU) | (first >> 2 & 0x30303030U);
        const std::uint32_t low_minimums = second & 0x3F3F3F3FU;
        const std::uint32_t high_minimums = (third >> 4 & 0x0F0F0F0FU) | (second >> 2 & 0x30303030U);
        scales = _mm256_broadcastsi128_si256(_mm_cvtepu8_epi16(two(low_scales, high_scales)));
        const __m128i minimums = _mm_cvtepu8_epi16(B::as_sums(two(low_minimums, high_minimums)));
        batch.minimums[i] = _mm_madd_epi16(minimums, _mm_load_si128(reinterpret_cast<const __m128i*>(block.sums32)));
        const __m128i header = _mm_cvtsi32_si128(static_cast<int>(B::word(from)));
        batch.push_scale(header);
        batch.push_minimum_scale(_mm_srli_si128(header, 2));
    }

  private:
    static __m128i two(std::uint32_t low, std::uint32_t high) {
        return _mm_cvtsi64_si128(static_cast<long long>(low | std::uint64_t{high} << 32));
    }
};

struct StreamQ4K : StreamWide {
    static constexpr std::size_t kBytes = 144;

    template <class V>
    static void add(const std::byte* from, const WideRow<V>& row, std::size_t unit, std::size_t i, Batch<V>& batch) {
        using B = Bytes<V>;
        const Wide& block = row.blocks[unit];
        const StreamScales8<V> s(from, block, i, batch);
        const std::int8_t* q = block.q;
        __m256i even = _mm256_setzero_si256();
        __m256i odd = _mm256_setzero_si256();
        const auto quarter = [&]<int kQuarter>() {
            const __m256i bytes = B::load(from + 16 + 32 * kQuarter);
            even = B::add(even, B::low_nibbles(bytes), q + 64 * kQuarter, B::template spread<2 * kQuarter>(s.scales));
            odd = B::add(odd, B::high_nibbles(bytes), q + 64 * kQuarter + 32,
                         B::template spread<2 * kQuarter + 1>(s.scales));
        };
        quarter.template operator()<0>();
        quarter.template operator()<1>();
        quarter.template operator()<2>();
        quarter.template operator()<3>();
        batch.sums[i] = _mm256_add_epi32(even, odd);
    }
    template <class V>
    static __m256 terms(const Batch<V>& batch, const WideRow<V>& row, std::size_t unit) {
        return with_minimums(batch, row, unit);
    }
};

struct StreamQ5K : StreamWide {
    static constexpr std::size_t kBytes = 176;

    template <class V>
    static void add(const std::byte* from, const WideRow<V>& row, std::size_t unit, std::size_t i, Batch<V>& batch) {
        using B = Bytes<V>;
        const Wide& block = row.blocks[unit];
        const StreamScales8<V> s(from, block, i, batch);
        const std::int8_t* q = block.q;
        const __m256i high = B::load(from + 16);
        __m256i even = _mm256_setzero_si256();
        __m256i odd = _mm256_setzero_si256();
        const auto quarter = [&]<int kQuarter>() {
            const __m256i bytes = B::load(from + 48 + 32 * kQuarter);
            const __m256i lower = _mm256_or_si256(B::low_nibbles(bytes), B::template bits<4 - 2 * kQuarter>(high, 16));
            const __m256i upper = _mm256_or_si256(B::high_nibbles(bytes), B::template bits<3 - 2 * kQuarter>(high, 16));
            even = B::add(even, lower, q + 64 * kQuarter, B::template spread<2 * kQuarter>(s.scales));
            odd = B::add(odd, upper, q + 64 * kQuarter + 32, B::template spread<2 * kQuarter + 1>(s.scales));
        };
        quarter.template operator()<0>();
        quarter.template operator()<1>();
        quarter.template operator()<2>();
        quarter.template operator()<3>();
        batch.sums[i] = _mm256_add_epi32(even, odd);
    }
    template <class V>
    static __m256 terms(const Batch<V>& batch, const WideRow<V>& row, std::size_t unit) {
        return with_minimums(batch, row, unit);
    }
};

struct StreamQ6K : StreamWide {
    static constexpr std::size_t kBytes = 210;

    template <class V>
    static void add(const std::byte* from, const WideRow<V>& row, std::size_t unit, std::size_t i, Batch<V>& batch) {
        using B = Bytes<V>;
        const Wide& block = row.blocks[unit];
        const std::int8_t* q = block.q;
        const __m128i bytes = B::load16(from + 192);
        const __m256i scales = _mm256_cvtepi8_epi16(B::evens_odds(bytes));
        __m256i even = _mm256_setzero_si256();
        __m256i odd = _mm256_setzero_si256();
        const auto half = [&]<int kHalf>() {
            const __m256i low0 = B::load(from + 64 * kHalf);
            const __m256i low1 = B::load(from + 64 * kHalf + 32);
            const __m256i high = B::load(from + 128 + 32 * kHalf);
            const __m256i w0 = _mm256_or_si256(B::low_nibbles(low0), B::template bits<4>(high, 0x30));
            const __m256i w1 = _mm256_or_si256(B::low_nibbles(low1), B::template bits<2>(high, 0x30));
            const __m256i w2 = _mm256_or_si256(B::high_nibbles(low0), B::template bits<0>(high, 0x30));
            const __m256i w3 = _mm256_or_si256(B::high_nibbles(low1), B::template bits<-2>(high, 0x30));
            const std::int8_t* a = q + 128 * kHalf;
            even = B::add(even, w0, a, B::template spread<4 * kHalf>(scales));
            odd = B::add(odd, w1, a + 32, B::template spread<4 * kHalf + 1>(scales));
            even = B::add(even, w2, a + 64, B::template spread<4 * kHalf + 2>(scales));
            odd = B::add(odd, w3, a + 96, B::template spread<4 * kHalf + 3>(scales));
        };
        half.template operator()<0>();
        half.template operator()<1>();
        // 32 was added to every weight.
        const __m256i raised = _mm256_madd_epi16(_mm256_cvtepi8_epi16(B::as_sums(bytes)), B::sums16(block));
        batch.sums[i] = _mm256_sub_epi32(_mm256_add_epi32(even, odd), _mm256_slli_epi32(raised, 5));
        batch.push_scale(from + 208);
    }
    template <class V>
    static __m256 terms(const Batch<V>& batch, const WideRow<V>& row, std::size_t unit) {
        return without_minimums(batch, row, unit);
    }
};

struct StreamQ2K : StreamWide {
    static constexpr std::size_t kBytes = 84;

    template <class V>
    static void add(const std::byte* from, const WideRow<V>& row, std::size_t unit, std::size_t i, Batch<V>& batch) {
        using B = Bytes<V>;
        const Wide& block = row.blocks[unit];
        const std::int8_t* q = block.q;
        const __m128i bytes = B::load16(from);
        const __m128i nibble = _mm_set1_epi8(15);
        const __m256i scales = _mm256_cvtepu8_epi16(B::evens_odds(_mm_and_si128(bytes, nibble)));
        const __m128i minimums = B::as_sums(_mm_and_si128(_mm_srli_epi16(bytes, 4), nibble));
        batch.minimums[i] = Across<V>::halves(_mm256_madd_epi16(_mm256_cvtepu8_epi16(minimums), B::sums16(block)));
        __m256i even = _mm256_setzero_si256();
        __m256i odd = _mm256_setzero_si256();
        const auto half = [&]<int kHalf>() {
            const __m256i two = B::load(from + 16 + 32 * kHalf);
            const std::int8_t* a = q + 128 * kHalf;
            even = B::add(even, B::template bits<0>(two, 3), a, B::template spread<4 * kHalf>(scales));
            odd = B::add(odd, B::template bits<-2>(two, 3), a + 32, B::template spread<4 * kHalf + 1>(scales));
            even = B::add(even, B::template bits<-4>(two, 3), a + 64, B::template spread<4 * kHalf + 2>(scales));
            odd = B::add(odd, B::template bits<-6>(two, 3), a + 96, B::template spread<4 * kHalf + 3>(scales));
        };
        half.template operator()<0>();
        half.template operator()<1>();
        batch.sums[i] = _mm256_add_epi32(even, odd);
        const __m128i last = _mm_cvtsi32_si128(static_cast<int>(B::word(from + 80)));
        batch.push_scale(last);
        batch.push_minimum_scale(_mm_srli_si128(last, 2));
    }
    template <class V>
    static __m256 terms(const Batch<V>& batch, const WideRow<V>& row, std::size_t unit) {
        return with_minimums(batch, row, unit);
    }
};

struct StreamQ3K : StreamWide {
    static constexpr std::size_t kBytes = 110;

    template <class V>
    static void add(const std::byte* from, const WideRow<V>& row, std::size_t unit, std::size_t i, Batch<V>& batch) {
        using B = Bytes<V>;
        const Wide& block = row.blocks[unit];
        const std::int8_t* q = block.q;
        const __m128i bytes = scale_bytes<V>(from + 96);
        const __m256i scales = _mm256_cvtepi8_epi16(B::evens_odds(bytes));
        const __m256i high = B::load(from);
        __m256i even = _mm256_setzero_si256();
        __m256i odd = _mm256_setzero_si256();
        const auto half = [&]<int kHalf>() {
            const __m256i two = B::load(from + 32 + 32 * kHalf);
            const std::int8_t* a = q + 128 * kHalf;
            const auto weights = [&]<int kQuarter>() {
                return _mm256_or_si256(B::template bits<-2 * kQuarter>(two, 3),
                                       B::template bits<2 - 4 * kHalf - kQuarter>(high, 4));
            };
            even = B::add(even, weights.template operator()<0>(), a, B::template spread<4 * kHalf>(scales));
            odd = B::add(odd, weights.template operator()<1>(), a + 32, B::template spread<4 * kHalf + 1>(scales));
            even = B::add(even, weights.template operator()<2>(), a + 64, B::template spread<4 * kHalf + 2>(scales));
            odd = B::add(odd, weights.template operator()<3>(), a + 96, B::template spread<4 * kHalf + 3>(scales));
        };
        half.template operator()<0>();
        half.template operator()<1>();
        // 4 was added to every weight.
        const __m256i raised = _mm256_madd_epi16(_mm256_cvtepi8_epi16(B::as_sums(bytes)), B::sums16(block));
        batch.sums[i] = _mm256_sub_epi32(_mm256_add_epi32(even, odd), _mm256_slli_epi32(raised, 2));
        batch.push_scale(from + 108);
    }
    template <class V>
    static __m256 terms(const Batch<V>& batch, const WideRow<V>& row, std::size_t unit) {
        return without_minimums(batch, row, unit);
    }

  private:
    template <class V>
    static __m128i scale_bytes(const std::byte* from) {
        using B = Bytes<V>;
        const std::uint32_t first = B::word(from);
        const std::uint32_t second = B::word(from + 4);
        const std::uint32_t top = B::word(from + 8);
        constexpr std::uint32_t kNibbles = 0x0F0F0F0FU;
        constexpr std::uint32_t kTop = 0x30303030U;
        const __m128i raised =
            B::pair((first & kNibbles) | (top << 4 & kTop), (second & kNibbles) | (top << 2 & kTop),
                    (first >> 4 & kNibbles) | (top & kTop), (second >> 4 & kNibbles) | (top >> 2 & kTop));
        return _mm_sub_epi8(raised, _mm_set1_epi8(32));
    }
};

struct StreamIq4Xs : StreamWide {
    static constexpr std::size_t kBytes = 136;

    template <class V>
    static void add(const std::byte* from, const WideRow<V>& row, std::size_t unit, std::size_t i, Batch<V>& batch) {
        using B = Bytes<V>;
        const Wide& block = row.blocks[unit];
        const std::int8_t* q = block.q;
        const __m256i scales = _mm256_broadcastsi128_si256(scale_numbers<V>(from));
        const __m256i table = _mm256_broadcastsi128_si256(B::load16(kIq4Table));
        __m256i even = _mm256_setzero_si256();
        __m256i odd = _mm256_setzero_si256();
        const auto pair = [&]<int kPair>() {
            const __m256i bytes = B::load(from + 8 + 32 * kPair);
            const __m256i low = _mm256_shuffle_epi8(table, B::low_nibbles(bytes));
            const __m256i high = _mm256_shuffle_epi8(table, B::high_nibbles(bytes));
            const std::int8_t* a = q + 64 * kPair;
            even = add_signed<V>(even, _mm256_permute2x128_si256(low, high, 0x20), a,
                                 B::template spread<2 * kPair>(scales));
            odd = add_signed<V>(odd, _mm256_permute2x128_si256(low, high, 0x31), a + 32,
                                B::template spread<2 * kPair + 1>(scales));
        };
        pair.template operator()<0>();
        pair.template operator()<1>();
        pair.template operator()<2>();
        pair.template operator()<3>();
        batch.sums[i] = _mm256_add_epi32(even, odd);
        batch.push_scale(from);
    }
    template <class V>
    static __m256 terms(const Batch<V>& batch, const WideRow<V>& row, std::size_t unit) {
        return without_minimums(batch, row, unit);
    }

  private:
    // Weights lend their sign to the integers, which are never −128.
    template <class V>
    static __m256i add_signed(__m256i sum, __m256i weights, const std::int8_t* q, __m256i scales) {
        const __m256i integers = _mm256_sign_epi8(Bytes<V>::load(q), weights);
        return V::add_pairs8(sum, _mm256_maddubs_epi16(_mm256_abs_epi8(weights), integers), scales);
    }
    template <class V>
    static __m128i scale_numbers(const std::byte* from) {
        using B = Bytes<V>;
        const std::uint32_t nibbles = B::word(from + 4);
        const __m128i even = _mm_cvtsi32_si128(static_cast<int>(nibbles & 0x0F0F0F0FU));
        const __m128i odd = _mm_cvtsi32_si128(static_cast<int>(nibbles >> 4 & 0x0F0F0F0FU));
        const __m128i low = _mm_cvtepu8_epi16(_mm_unpacklo_epi8(even, odd));
        // Two bits each, to the top and down again to bits 4 and 5.
        const __m128i all = _mm_set1_epi16(static_cast<short>(B::word(from) >> 16));
        const __m128i top =
            _mm_mullo_epi16(all, _mm_setr_epi16(1 << 14, 1 << 12, 1 << 10, 1 << 8, 1 << 6, 1 << 4, 1 << 2, 1));
        const __m128i high = _mm_slli_epi16(_mm_srli_epi16(top, 14), 4);
        return _mm_sub_epi16(_mm_or_si128(low, high), _mm_set1_epi16(32));
    }
};

}  // namespace kvasir::portable
