// Weight types for tiles.h: where the bytes of section 3 go, for one unit of all rows of a tile at once. Lane r of
// every vector belongs to row r; `from` is the unit's block in row 0, `stride` the distance of rows in bytes.
//
// A type's `unpack` hands blocks of columns that share a scale to a sink, as words of four unsigned bytes:
// sink.block<kMax, kWords>(first column, words, scale). What the integers were raised by is taken off with kOffset.
#pragma once

#include <cstddef>
#include <cstdint>

#include "portable/types.h"

namespace kvasir::portable {

// What belongs to a unit as a whole.
template <class V>
struct UnitScales {
    typename V::Floats scale;          // d
    typename V::Floats minimum_scale;  // m
    // Pairs of int16 that multiply sums16 or sums32 of the row (prepared.h): minimums, or scales where there is an
    // offset.
    typename V::Ints pairs[8];
};

template <class V>
struct Words {
    using I = typename V::Ints;

    static I low_nibbles(I words) { return V::both(words, V::all(0x0F0F0F0F)); }
    static I high_nibbles(I words) {
        if constexpr (requires { V::high_nibbles(words); }) return V::high_nibbles(words);
        return V::both(V::template right<4>(words), V::all(0x0F0F0F0F));
    }
    template <int kByte>
    static I byte(I words) {
        if constexpr (kByte == 3) return V::template right<24>(words);
        return V::both(V::template right<8 * kByte>(words), V::all(255));
    }
    template <int kByte>
    static I signed_byte(I words) {
        return V::template right_signed<24>(V::template left<24 - 8 * kByte>(words));
    }
    // The int16 pairs (byte 0, byte 2) and (byte 1, byte 3).
    static I even_bytes(I words) { return V::both(words, V::all(0x00FF00FF)); }
    static I odd_bytes(I words) { return V::both(V::template right<8>(words), V::all(0x00FF00FF)); }
    static I even_signed(I words) { return V::template right_signed16<8>(V::template left16<8>(words)); }
    static I odd_signed(I words) { return V::template right_signed16<8>(words); }

    // Weights as `dot` wants them: V::load16's words, unless V has an order of its own.
    static void load_weights16(const std::byte* from, std::size_t stride, I* words) {
        if constexpr (requires { V::load_weights16(from, stride, words); })
            V::load_weights16(from, stride, words);
        else
            V::load16(from, stride, words);
    }
    static void load32(const std::byte* from, std::size_t stride, I* words) {
        load_weights16(from, stride, words);
        load_weights16(from + 16, stride, words + 4);
    }
};

// Tables for V::look_up.
alignas(16) inline constexpr std::int8_t kIq4Table[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                          1,    13,   25,  38,  53,  69,  89,  113};
// Raised by 12.
alignas(16) inline constexpr std::int8_t kFp4Table[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};

// ---- 256 columns. kScaleColumns share a scale. kOffset: what each W/c was raised by. kMinimums: pairs are N.

// Scales and minimums of Q4_K and Q5_K.
template <class V>
struct Scales8 {
    using I = typename V::Ints;
    using W = Words<V>;
    I scale_bytes[2];

    Scales8(const std::byte* from, std::size_t stride, UnitScales<V>& unit) {
        I header[4];
        V::load16(from, stride, header);
        unit.scale = V::from_halves(header[0]);
        unit.minimum_scale = V::from_halves(V::template right<16>(header[0]));
        const I six = V::all(0x3F3F3F3F);
        const I four = V::all(0x0F0F0F0F);
        const I top = V::all(0x30303030);
        scale_bytes[0] = V::both(header[1], six);
        scale_bytes[1] = V::either(V::both(header[3], four), V::both(V::template right<2>(header[1]), top));
        const I low = V::both(header[2], six);
        const I high =
            V::either(V::both(V::template right<4>(header[3]), four), V::both(V::template right<2>(header[2]), top));
        unit.pairs[0] = W::even_bytes(low);
        unit.pairs[1] = W::odd_bytes(low);
        unit.pairs[2] = W::even_bytes(high);
        unit.pairs[3] = W::odd_bytes(high);
    }
    template <int kIndex>
    I scale() const {
        return V::make_scale(W::template byte<kIndex & 3>(scale_bytes[kIndex >> 2]));
    }
};

struct Q4K {
    static constexpr ggml_type kType = GGML_TYPE_Q4_K;
    static constexpr std::size_t kBytes = 144;
    static constexpr int kScaleColumns = 32;
    static constexpr bool kMinimums = true;
    template <class V>
    static constexpr int kOffset = 0;

    template <class V, class Sink>
    static void unpack(const std::byte* from, std::size_t stride, UnitScales<V>& unit, Sink& sink) {
        const Scales8<V> scales(from, stride, unit);
        quarter<0>(scales, from, stride, sink);
        quarter<1>(scales, from, stride, sink);
        quarter<2>(scales, from, stride, sink);
        quarter<3>(scales, from, stride, sink);
    }

  private:
    template <int kQuarter, class V, class Sink>
    static void quarter(const Scales8<V>& scales, const std::byte* from, std::size_t stride, Sink& sink) {
        typename V::Ints words[8];
        typename V::Ints part[8];
        Words<V>::load32(from + 16 + 32 * kQuarter, stride, words);
        for (int i = 0; i < 8; ++i)
            part[i] = Words<V>::low_nibbles(words[i]);
        sink.template block<15, 8>(64 * kQuarter, part, scales.template scale<2 * kQuarter>());
        for (int i = 0; i < 8; ++i)
            part[i] = Words<V>::high_nibbles(words[i]);
        sink.template block<15, 8>(64 * kQuarter + 32, part, scales.template scale<2 * kQuarter + 1>());
    }
};

struct Q5K {
    static constexpr ggml_type kType = GGML_TYPE_Q5_K;
    static constexpr std::size_t kBytes = 176;
    static constexpr int kScaleColumns = 32;
    static constexpr bool kMinimums = true;
    template <class V>
    static constexpr int kOffset = 0;

    template <class V, class Sink>
    static void unpack(const std::byte* from, std::size_t stride, UnitScales<V>& unit, Sink& sink) {
        const Scales8<V> scales(from, stride, unit);
        typename V::Ints high[8];
        Words<V>::load32(from + 16, stride, high);
        quarter<0>(scales, high, from, stride, sink);
        quarter<1>(scales, high, from, stride, sink);
        quarter<2>(scales, high, from, stride, sink);
        quarter<3>(scales, high, from, stride, sink);
    }

  private:
    // Bit kBit of every byte as 16.
    template <int kBit, class V>
    static typename V::Ints fifth(typename V::Ints bits) {
        if constexpr (kBit <= 4) return V::both(V::template left<4 - kBit>(bits), V::all(0x10101010));
        if constexpr (kBit > 4) return V::both(V::template right<kBit - 4>(bits), V::all(0x10101010));
    }
    template <int kQuarter, class V, class Sink>
    static void quarter(const Scales8<V>& scales, const typename V::Ints* high, const std::byte* from,
                        std::size_t stride, Sink& sink) {
        typename V::Ints words[8];
        typename V::Ints part[8];
        Words<V>::load32(from + 48 + 32 * kQuarter, stride, words);
        for (int i = 0; i < 8; ++i)
            part[i] = V::either(Words<V>::low_nibbles(words[i]), fifth<2 * kQuarter, V>(high[i]));
        sink.template block<31, 8>(64 * kQuarter, part, scales.template scale<2 * kQuarter>());
        for (int i = 0; i < 8; ++i)
            part[i] = V::either(Words<V>::high_nibbles(words[i]), fifth<2 * kQuarter + 1, V>(high[i]));
        sink.template block<31, 8>(64 * kQuarter + 32, part, scales.template scale<2 * kQuarter + 1>());
    }
};

// Sixteen signed byte scales, for types whose integers are raised.
template <class V>
struct SignedScales16 {
    using I = typename V::Ints;
    I bytes[4];

    void set_pairs(UnitScales<V>& unit) const {
        for (int i = 0; i < 4; ++i) {
            unit.pairs[2 * i] = Words<V>::even_signed(bytes[i]);
            unit.pairs[2 * i + 1] = Words<V>::odd_signed(bytes[i]);
        }
    }
    template <int kIndex>
    I scale() const {
        return V::make_scale(Words<V>::template signed_byte<kIndex & 3>(bytes[kIndex >> 2]));
    }
};

struct Q6K {
    static constexpr ggml_type kType = GGML_TYPE_Q6_K;
    static constexpr std::size_t kBytes = 210;
    static constexpr int kScaleColumns = 16;
    static constexpr bool kMinimums = false;
    template <class V>
    static constexpr int kOffset = 32;

    template <class V, class Sink>
    static void unpack(const std::byte* from, std::size_t stride, UnitScales<V>& unit, Sink& sink) {
        SignedScales16<V> scales;
        typename V::Ints last[4];
        V::load16(from + 192, stride, scales.bytes);
        V::load16(from + 194, stride, last);
        unit.scale = V::from_halves(V::template right<16>(last[3]));
        scales.set_pairs(unit);
        half<0>(scales, from, stride, sink);
        half<1>(scales, from, stride, sink);
    }

  private:
    template <int kHalf, class V, class Sink>
    static void half(const SignedScales16<V>& scales, const std::byte* from, std::size_t stride, Sink& sink) {
        typename V::Ints low[16];
        typename V::Ints high[8];
        Words<V>::load32(from + 64 * kHalf, stride, low);
        Words<V>::load32(from + 64 * kHalf + 32, stride, low + 8);
        Words<V>::load32(from + 128 + 32 * kHalf, stride, high);
        quarter<kHalf, 0>(scales, low, high, sink);
        quarter<kHalf, 1>(scales, low + 8, high, sink);
        quarter<kHalf, 2>(scales, low, high, sink);
        quarter<kHalf, 3>(scales, low + 8, high, sink);
    }
    template <int kQuarter, class V>
    static typename V::Ints integer(typename V::Ints low, typename V::Ints high) {
        const typename V::Ints nibble = kQuarter < 2 ? Words<V>::low_nibbles(low) : Words<V>::high_nibbles(low);
        typename V::Ints top = high;
        if constexpr (kQuarter < 2) top = V::template left<4 - 2 * kQuarter>(high);
        if constexpr (kQuarter == 3) top = V::template right<2>(high);
        return V::either(nibble, V::both(top, V::all(0x30303030)));
    }
    template <int kHalf, int kQuarter, class V, class Sink>
    static void quarter(const SignedScales16<V>& scales, const typename V::Ints* low, const typename V::Ints* high,
                        Sink& sink) {
        typename V::Ints part[8];
        for (int i = 0; i < 8; ++i)
            part[i] = integer<kQuarter, V>(low[i], high[i]);
        constexpr int kFirst = 8 * kHalf + 2 * kQuarter;
        sink.template block<63, 4>(16 * kFirst, part, scales.template scale<kFirst>());
        sink.template block<63, 4>(16 * kFirst + 16, part + 4, scales.template scale<kFirst + 1>());
    }
};

// Quarter kQuarter of 2-bit integers.
template <int kQuarter, class V>
typename V::Ints two_bits(typename V::Ints words) {
    return V::both(V::template right<2 * kQuarter>(words), V::all(0x03030303));
}

struct Q2K {
    static constexpr ggml_type kType = GGML_TYPE_Q2_K;
    static constexpr std::size_t kBytes = 84;
    static constexpr int kScaleColumns = 16;
    static constexpr bool kMinimums = true;
    template <class V>
    static constexpr int kOffset = 0;

    template <class V, class Sink>
    static void unpack(const std::byte* from, std::size_t stride, UnitScales<V>& unit, Sink& sink) {
        using W = Words<V>;
        typename V::Ints bytes[4];
        typename V::Ints last[4];
        V::load16(from, stride, bytes);
        V::load16(from + 68, stride, last);
        unit.scale = V::from_halves(last[3]);
        unit.minimum_scale = V::from_halves(V::template right<16>(last[3]));
        for (int i = 0; i < 4; ++i) {
            const typename V::Ints minimums = W::high_nibbles(bytes[i]);
            unit.pairs[2 * i] = W::even_bytes(minimums);
            unit.pairs[2 * i + 1] = W::odd_bytes(minimums);
            bytes[i] = W::low_nibbles(bytes[i]);
        }
        half<0, V>(bytes, from, stride, sink);
        half<1, V>(bytes, from, stride, sink);
    }

  private:
    template <int kHalf, class V, class Sink>
    static void half(const typename V::Ints* scales, const std::byte* from, std::size_t stride, Sink& sink) {
        typename V::Ints words[8];
        Words<V>::load32(from + 16 + 32 * kHalf, stride, words);
        quarter<kHalf, 0, V>(scales, words, sink);
        quarter<kHalf, 1, V>(scales, words, sink);
        quarter<kHalf, 2, V>(scales, words, sink);
        quarter<kHalf, 3, V>(scales, words, sink);
    }
    template <int kHalf, int kQuarter, class V, class Sink>
    static void quarter(const typename V::Ints* scales, const typename V::Ints* words, Sink& sink) {
        typename V::Ints part[8];
        for (int i = 0; i < 8; ++i)
            part[i] = two_bits<kQuarter, V>(words[i]);
        constexpr int kFirst = 8 * kHalf + 2 * kQuarter;
        const typename V::Ints bytes = scales[kFirst >> 2];
        sink.template block<3, 4>(16 * kFirst, part, V::make_scale(Words<V>::template byte<kFirst & 3>(bytes)));
        sink.template block<3, 4>(16 * kFirst + 16, part + 4,
                                  V::make_scale(Words<V>::template byte<(kFirst & 3) + 1>(bytes)));
    }
};

struct Q3K {
    static constexpr ggml_type kType = GGML_TYPE_Q3_K;
    static constexpr std::size_t kBytes = 110;
    static constexpr int kScaleColumns = 16;
    static constexpr bool kMinimums = false;
    template <class V>
    static constexpr int kOffset = 4;

    template <class V, class Sink>
    static void unpack(const std::byte* from, std::size_t stride, UnitScales<V>& unit, Sink& sink) {
        SignedScales16<V> scales;
        typename V::Ints words[4];
        V::load16(from + 94, stride, words);
        unit.scale = V::from_halves(V::template right<16>(words[3]));
        V::load16(from + 92, stride, words);
        const typename V::Ints top = V::all(0x30303030);
        const typename V::Ints raised = V::all(0x20202020);
        const typename V::Ints high = words[3];
        const auto scale_bytes = [&](typename V::Ints nibbles, typename V::Ints two) {
            return V::subtract_bytes(V::either(nibbles, V::both(two, top)), raised);
        };
        scales.bytes[0] = scale_bytes(Words<V>::low_nibbles(words[1]), V::template left<4>(high));
        scales.bytes[1] = scale_bytes(Words<V>::low_nibbles(words[2]), V::template left<2>(high));
        scales.bytes[2] = scale_bytes(Words<V>::high_nibbles(words[1]), high);
        scales.bytes[3] = scale_bytes(Words<V>::high_nibbles(words[2]), V::template right<2>(high));
        scales.set_pairs(unit);
        typename V::Ints masks[8];
        Words<V>::load32(from, stride, masks);
        half<0>(scales, masks, from, stride, sink);
        half<1>(scales, masks, from, stride, sink);
    }

  private:
    // Bit kBit of every byte as 4.
    template <int kBit, class V>
    static typename V::Ints third(typename V::Ints bits) {
        if constexpr (kBit <= 2) return V::both(V::template left<2 - kBit>(bits), V::all(0x04040404));
        if constexpr (kBit > 2) return V::both(V::template right<kBit - 2>(bits), V::all(0x04040404));
    }
    template <int kHalf, class V, class Sink>
    static void half(const SignedScales16<V>& scales, const typename V::Ints* masks, const std::byte* from,
                     std::size_t stride, Sink& sink) {
        typename V::Ints words[8];
        Words<V>::load32(from + 32 + 32 * kHalf, stride, words);
        quarter<kHalf, 0>(scales, masks, words, sink);
        quarter<kHalf, 1>(scales, masks, words, sink);
        quarter<kHalf, 2>(scales, masks, words, sink);
        quarter<kHalf, 3>(scales, masks, words, sink);
    }
    template <int kHalf, int kQuarter, class V, class Sink>
    static void quarter(const SignedScales16<V>& scales, const typename V::Ints* masks, const typename V::Ints* words,
                        Sink& sink) {
        typename V::Ints part[8];
        for (int i = 0; i < 8; ++i)
            part[i] = V::either(two_bits<kQuarter, V>(words[i]), third<4 * kHalf + kQuarter, V>(masks[i]));
        constexpr int kFirst = 8 * kHalf + 2 * kQuarter;
        sink.template block<7, 4>(16 * kFirst, part, scales.template scale<kFirst>());
        sink.template block<7, 4>(16 * kFirst + 16, part + 4, scales.template scale<kFirst + 1>());
    }
};

struct Iq4Xs {
    static constexpr ggml_type kType = GGML_TYPE_IQ4_XS;
    static constexpr std::size_t kBytes = 136;
    static constexpr int kScaleColumns = 32;
    static constexpr bool kMinimums = false;
    template <class V>
    static constexpr int kOffset = V::kSignedOffset;

    template <class V, class Sink>
    static void unpack(const std::byte* from, std::size_t stride, UnitScales<V>& unit, Sink& sink) {
        typename V::Ints header[4];
        V::load16(from, stride, header);
        unit.scale = V::from_halves(header[0]);
        group<0>(header, from, stride, sink);
        group<1>(header, from, stride, sink);
        group<2>(header, from, stride, sink);
        group<3>(header, from, stride, sink);
        group<4>(header, from, stride, sink);
        group<5>(header, from, stride, sink);
        group<6>(header, from, stride, sink);
        group<7>(header, from, stride, sink);
        // Sums of 32 come as (0, 2) (1, 3) (4, 6) (5, 7).
        unit.pairs[0] = pair<0, 2, V>(header);
        unit.pairs[1] = pair<1, 3, V>(header);
        unit.pairs[2] = pair<4, 6, V>(header);
        unit.pairs[3] = pair<5, 7, V>(header);
    }

  private:
    template <int kIndex, class V>
    static typename V::Ints scale(const typename V::Ints* header) {
        const typename V::Ints low = V::both(V::template right<4 * kIndex>(header[1]), V::all(15));
        typename V::Ints high = header[0];
        // Bits 16 + 2·kIndex on, to bits 4 and 5.
        if constexpr (16 + 2 * kIndex >= 4) high = V::template right<16 + 2 * kIndex - 4>(high);
        return V::subtract(V::either(low, V::both(high, V::all(0x30))), V::all(32));
    }
    template <int kFirst, int kSecond, class V>
    static typename V::Ints pair(const typename V::Ints* header) {
        return V::either(V::both(scale<kFirst, V>(header), V::all(0xFFFF)),
                         V::template left<16>(scale<kSecond, V>(header)));
    }
    template <int kIndex, class I, class Sink>
    static void group(const I* header, const std::byte* from, std::size_t stride, Sink& sink) {
        using V = typename Sink::Vector;
        I words[4];
        I part[8];
        Words<V>::load_weights16(from + 8 + 16 * kIndex, stride, words);
        for (int i = 0; i < 4; ++i) {
            part[i] = V::from_signed(V::look_up(kIq4Table, Words<V>::low_nibbles(words[i])));
            part[4 + i] = V::from_signed(V::look_up(kIq4Table, Words<V>::high_nibbles(words[i])));
        }
        sink.template block<255, 8>(32 * kIndex, part, V::make_scale(scale<kIndex, V>(header)));
    }
};

}  // namespace kvasir::portable
