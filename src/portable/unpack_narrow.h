// Weight types of 32 columns for tiles.h, as in unpack.h: a unit is eight words of four unsigned bytes, without scales
// within, so `unpack` fills the words and leaves the multiplication to the caller.
#pragma once

#include <array>

#include "portable/numbers.h"
#include "portable/unpack.h"

namespace kvasir::portable {

// What M is, section 3's N.
enum class NarrowMinimums {
    none,
    minus_sum,   // N = −1: Q4_1, Q5_1
    upper_half,  // the upper 16 columns with a scale of their own: NVFP4
};

template <class V>
struct NarrowUnit {
    typename V::Ints words[8];
    typename V::Floats scale;
    typename V::Floats minimum_scale;
};

// The 16 bytes at `from` as words of columns 0..15 (low nibbles) and 16..31 (high nibbles).
template <class V>
void load_nibbles(const std::byte* from, std::size_t stride, typename V::Ints* words) {
    typename V::Ints raw[4];
    Words<V>::load_weights16(from, stride, raw);
    for (int i = 0; i < 4; ++i) {
        words[i] = Words<V>::low_nibbles(raw[i]);
        words[4 + i] = Words<V>::high_nibbles(raw[i]);
    }
}

// Bit j of the 32 becomes 16 in column j.
template <class V>
void add_fifth_bits(typename V::Ints bits, typename V::Ints* words) {
    const auto spread = [&](int i, typename V::Ints four) {
        const typename V::Ints spaced = V::times(V::both(four, V::all(15)), V::all(0x00204081));
        words[i] = V::either(words[i], V::template left<4>(V::both(spaced, V::all(0x01010101))));
    };
    spread(0, bits);
    spread(1, V::template right<4>(bits));
    spread(2, V::template right<8>(bits));
    spread(3, V::template right<12>(bits));
    spread(4, V::template right<16>(bits));
    spread(5, V::template right<20>(bits));
    spread(6, V::template right<24>(bits));
    spread(7, V::template right<28>(bits));
}

// f32 of every byte, for scales of one byte.
inline constexpr auto kE8m0h = [] {
    std::array<float, 256> table{};
    for (std::size_t e = 0; e < 256; ++e)
        table[e] = e8m0h(static_cast<std::uint8_t>(e));
    return table;
}();
inline constexpr auto kUe4m3h = [] {
    std::array<float, 256> table{};
    for (std::size_t x = 0; x < 256; ++x)
        table[x] = ue4m3h(static_cast<std::uint8_t>(x));
    return table;
}();

// kMax: the largest raised integer, 255 for signed ones.
struct Q4_0 {
    static constexpr ggml_type kType = GGML_TYPE_Q4_0;
    static constexpr NarrowMinimums kMinimums = NarrowMinimums::none;
    static constexpr int kMax = 15;
    template <class V>
    static constexpr int kOffset = 8;
    template <class V>
    static void unpack(const std::byte* from, std::size_t stride, std::size_t, NarrowUnit<V>& unit) {
        unit.scale = V::from_halves(V::load_halves(from, stride));
        load_nibbles<V>(from + 2, stride, unit.words);
    }
};

struct Q4_1 {
    static constexpr ggml_type kType = GGML_TYPE_Q4_1;
    static constexpr NarrowMinimums kMinimums = NarrowMinimums::minus_sum;
    static constexpr int kMax = 15;
    template <class V>
    static constexpr int kOffset = 0;
    template <class V>
    static void unpack(const std::byte* from, std::size_t stride, std::size_t, NarrowUnit<V>& unit) {
        const typename V::Ints scales = V::load_words(from, stride);
        unit.scale = V::from_halves(scales);
        unit.minimum_scale = V::from_halves(V::template right<16>(scales));
        load_nibbles<V>(from + 4, stride, unit.words);
    }
};

struct Q5_0 {
    static constexpr ggml_type kType = GGML_TYPE_Q5_0;
    static constexpr NarrowMinimums kMinimums = NarrowMinimums::none;
    static constexpr int kMax = 31;
    template <class V>
    static constexpr int kOffset = 16;
    template <class V>
    static void unpack(const std::byte* from, std::size_t stride, std::size_t, NarrowUnit<V>& unit) {
        unit.scale = V::from_halves(V::load_halves(from, stride));
        load_nibbles<V>(from + 6, stride, unit.words);
        add_fifth_bits<V>(V::load_words(from + 2, stride), unit.words);
    }
};

struct Q5_1 {
    static constexpr ggml_type kType = GGML_TYPE_Q5_1;
    static constexpr NarrowMinimums kMinimums = NarrowMinimums::minus_sum;
    static constexpr int kMax = 31;
    template <class V>
    static constexpr int kOffset = 0;
    template <class V>
    static void unpack(const std::byte* from, std::size_t stride, std::size_t, NarrowUnit<V>& unit) {
        const typename V::Ints scales = V::load_words(from, stride);
        unit.scale = V::from_halves(scales);
        unit.minimum_scale = V::from_halves(V::template right<16>(scales));
        load_nibbles<V>(from + 8, stride, unit.words);
        add_fifth_bits<V>(V::load_words(from + 4, stride), unit.words);
    }
};

struct Q8_0 {
    static constexpr ggml_type kType = GGML_TYPE_Q8_0;
    static constexpr NarrowMinimums kMinimums = NarrowMinimums::none;
    static constexpr int kMax = 255;
    template <class V>
    static constexpr int kOffset = V::kSignedOffset;
    template <class V>
    static void unpack(const std::byte* from, std::size_t stride, std::size_t, NarrowUnit<V>& unit) {
        unit.scale = V::from_halves(V::load_halves(from, stride));
        Words<V>::load32(from + 2, stride, unit.words);
        for (int i = 0; i < 8; ++i)
            unit.words[i] = V::from_signed(unit.words[i]);
    }
};

struct Iq4Nl {
    static constexpr ggml_type kType = GGML_TYPE_IQ4_NL;
    static constexpr NarrowMinimums kMinimums = NarrowMinimums::none;
    static constexpr int kMax = 255;
    template <class V>
    static constexpr int kOffset = V::kSignedOffset;
    template <class V>
    static void unpack(const std::byte* from, std::size_t stride, std::size_t, NarrowUnit<V>& unit) {
        unit.scale = V::from_halves(V::load_halves(from, stride));
        load_nibbles<V>(from + 2, stride, unit.words);
        for (int i = 0; i < 8; ++i)
            unit.words[i] = V::from_signed(V::look_up(kIq4Table, unit.words[i]));
    }
};

struct Mxfp4 {
    static constexpr ggml_type kType = GGML_TYPE_MXFP4;
    static constexpr NarrowMinimums kMinimums = NarrowMinimums::none;
    static constexpr int kMax = 24;
    template <class V>
    static constexpr int kOffset = 12;
    template <class V>
    static void unpack(const std::byte* from, std::size_t stride, std::size_t, NarrowUnit<V>& unit) {
        unit.scale = V::load_table(from, stride, kE8m0h.data());
        load_nibbles<V>(from + 1, stride, unit.words);
        for (int i = 0; i < 8; ++i)
            unit.words[i] = V::look_up(kFp4Table, unit.words[i]);
    }
};

struct Nvfp4 {
    static constexpr ggml_type kType = GGML_TYPE_NVFP4;
    static constexpr NarrowMinimums kMinimums = NarrowMinimums::upper_half;
    static constexpr int kMax = 24;
    template <class V>
    static constexpr int kOffset = 12;
    // `half` is the unit's place in its block of 64.
    template <class V>
    static void unpack(const std::byte* from, std::size_t stride, std::size_t half, NarrowUnit<V>& unit) {
        unit.scale = V::load_table(from + 2 * half, stride, kUe4m3h.data());
        unit.minimum_scale = V::load_table(from + 2 * half + 1, stride, kUe4m3h.data());
        typename V::Ints raw[4];
        V::load16(from + 4 + 16 * half, stride, raw);
        for (int i = 0; i < 2; ++i) {
            unit.words[i] = V::look_up(kFp4Table, Words<V>::low_nibbles(raw[i]));
            unit.words[2 + i] = V::look_up(kFp4Table, Words<V>::high_nibbles(raw[i]));
            unit.words[4 + i] = V::look_up(kFp4Table, Words<V>::low_nibbles(raw[2 + i]));
            unit.words[6 + i] = V::look_up(kFp4Table, Words<V>::high_nibbles(raw[2 + i]));
        }
    }
};

}  // namespace kvasir::portable
