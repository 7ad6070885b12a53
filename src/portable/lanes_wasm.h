// Four 32-bit lanes: one per output row of a tile (see tiles.h). Included only where the compiler may use WebAssembly's
// 128-bit vectors. A module is accepted with all its instructions or not at all, so here nothing is chosen at run time.
#pragma once

#include <wasm_simd128.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "portable/types.h"

namespace kvasir::portable {

struct Wasm {
    static constexpr int kRows = 4;
    // A single row has kernels of its own.
    static constexpr bool kSumInRegister = false;
    using Ints = v128_t;
    // A type of its own, so that add(Ints, Ints) and add(Floats, Floats) differ.
    struct Floats {
        v128_t vector;
    };

    static Ints zero() { return wasm_i32x4_splat(0); }
    static Ints all(int value) { return wasm_i32x4_splat(value); }
    static Floats all(float value) { return {wasm_f32x4_splat(value)}; }

    // One word for all lanes; a word or number of its own for each.
    static Ints broadcast(const void* from) { return wasm_v128_load32_splat(from); }
    static Ints load(const void* from) { return wasm_v128_load(from); }
    static Floats load(const float* from) { return {wasm_v128_load(from)}; }
    static void store(float* to, Floats value) { wasm_v128_store(to, value.vector); }

    // Words 0..3 of the 16 bytes at `from`, and of those `stride` bytes further, for each row.
    static void load16(const std::byte* from, std::size_t stride, Ints* words) {
        const Ints row0 = load(from);
        const Ints row1 = load(from + stride);
        const Ints row2 = load(from + 2 * stride);
        const Ints row3 = load(from + 3 * stride);
        const Ints low01 = wasm_i32x4_shuffle(row0, row1, 0, 4, 1, 5);
        const Ints high01 = wasm_i32x4_shuffle(row0, row1, 2, 6, 3, 7);
        const Ints low23 = wasm_i32x4_shuffle(row2, row3, 0, 4, 1, 5);
        const Ints high23 = wasm_i32x4_shuffle(row2, row3, 2, 6, 3, 7);
        words[0] = wasm_i64x2_shuffle(low01, low23, 0, 2);
        words[1] = wasm_i64x2_shuffle(low01, low23, 1, 3);
        words[2] = wasm_i64x2_shuffle(high01, high23, 0, 2);
        words[3] = wasm_i64x2_shuffle(high01, high23, 1, 3);
    }
    // The f16 at `from` of each row, in the low half of its lane.
    static Ints load_halves(const std::byte* from, std::size_t stride) {
        std::uint16_t halves[kRows];
        for (std::size_t row = 0; row < kRows; ++row)
            std::memcpy(&halves[row], from + row * stride, 2);
        return wasm_u32x4_load16x4(halves);
    }
    static Ints load_words(const std::byte* from, std::size_t stride) {
        std::uint32_t words[kRows];
        for (std::size_t row = 0; row < kRows; ++row)
            std::memcpy(&words[row], from + row * stride, 4);
        return load(words);
    }
    // table[byte at `from`] of each row.
    static Floats load_table(const std::byte* from, std::size_t stride, const float* table) {
        float values[kRows];
        for (std::size_t row = 0; row < kRows; ++row)
            values[row] = table[static_cast<std::uint8_t>(from[row * stride])];
        return load(values);
    }
    // Of the low halves.
    static Floats from_halves(Ints halves) { return from_extended_halves(right_signed<16>(left<16>(halves))); }
    // Of halves with their sign in all upper bits. Shifted into the place of f32's fraction and exponent, a number is
    // too small by 2^112, denormals too; what comes out above all of f16's numbers gets f32's largest exponent.
    static Floats from_extended_halves(Ints halves) {
        const Ints shifted = both(left<13>(halves), all(static_cast<int>(0x8FFFE000U)));
        const Ints scaled = wasm_f32x4_mul(shifted, wasm_f32x4_splat(0x1p112F));
        const Ints special = wasm_f32x4_ge(wasm_f32x4_abs(scaled), wasm_f32x4_splat(65536.0F));
        return {either(scaled, both(special, all(0x7F800000)))};
    }

    static Ints both(Ints a, Ints b) { return wasm_v128_and(a, b); }
    static Ints either(Ints a, Ints b) { return wasm_v128_or(a, b); }
    template <int kBits>
    static Ints right(Ints a) {
        return wasm_u32x4_shr(a, kBits);
    }
    template <int kBits>
    static Ints left(Ints a) {
        return wasm_i32x4_shl(a, kBits);
    }
    template <int kBits>
    static Ints right_signed(Ints a) {
        return wasm_i32x4_shr(a, kBits);
    }
    template <int kBits>
    static Ints right_signed16(Ints a) {
        return wasm_i16x8_shr(a, kBits);
    }
    template <int kBits>
    static Ints left16(Ints a) {
        return wasm_i16x8_shl(a, kBits);
    }
    static Ints add(Ints a, Ints b) { return wasm_i32x4_add(a, b); }
    static Ints subtract(Ints a, Ints b) { return wasm_i32x4_sub(a, b); }
    static Ints subtract_bytes(Ints a, Ints b) { return wasm_i8x16_sub(a, b); }
    static Ints times(Ints a, Ints b) { return wasm_i32x4_mul(a, b); }
    // Byte-wise table[nibble]; the table has 16 bytes.
    static Ints look_up(const std::int8_t* table, Ints nibbles) { return wasm_i8x16_swizzle(load(table), nibbles); }

    // Signed bytes are multiplied as they are (kMax 255 says that they are signed).
    static constexpr int kSignedOffset = 0;
    static Ints from_signed(Ints bytes) { return bytes; }

    // A scale as `add_scaled` wants it, from an int16 in each lane.
    static Ints make_scale(Ints value) { return value; }
    // sum + scale × Σ weights · integers: `kWords` words of four columns, weights up to kMax, unsigned, and
    // integers(i), the signed bytes that word i is multiplied with.
    template <int kMax, int kWords, class Integers>
    static Ints add_scaled(Ints sum, const Ints* weights, Integers integers, Ints scale) {
        return add(sum, times(dot<kMax, kWords>(weights, integers), scale));
    }
    // Products are added in 16 bits as long as none can overflow.
    template <int kMax, int kWords, class Integers>
    static Ints dot(const Ints* weights, Integers integers) {
        constexpr int kSafe = 32767 / (127 * (kMax > 127 ? 128 : kMax));
        constexpr int kGroup = kSafe < kWords ? kSafe : kWords;
        Ints rows01 = zero();  // lanes 0 and 1 are of row 0
        Ints rows23 = zero();
        for (int start = 0; start < kWords; start += kGroup) {
            Ints low = zero();
            Ints high = zero();
            for (int i = start; i < start + kGroup && i < kWords; ++i) {
                const Ints integer = integers(i);
                low = wasm_i16x8_add(low, wasm_i16x8_extmul_low_i8x16(weights[i], integer));
                high = wasm_i16x8_add(high, wasm_i16x8_extmul_high_i8x16(weights[i], integer));
            }
            rows01 = add(rows01, wasm_i32x4_extadd_pairwise_i16x8(low));
            rows23 = add(rows23, wasm_i32x4_extadd_pairwise_i16x8(high));
        }
        return add(wasm_i32x4_shuffle(rows01, rows23, 0, 2, 4, 6), wasm_i32x4_shuffle(rows01, rows23, 1, 3, 5, 7));
    }
    // sum + Σ pairs of int16.
    static Ints add_pairs(Ints sum, Ints pairs, Ints integers) {
        return add(sum, wasm_i32x4_dot_i16x8(pairs, integers));
    }

    static Floats convert(Ints a) { return {wasm_f32x4_convert_i32x4(a)}; }
    static Floats add(Floats a, Floats b) { return {wasm_f32x4_add(a.vector, b.vector)}; }
    static Floats subtract(Floats a, Floats b) { return {wasm_f32x4_sub(a.vector, b.vector)}; }
    static Floats times(Floats a, Floats b) { return {wasm_f32x4_mul(a.vector, b.vector)}; }
    static void store_canonical(float* to, Floats value) {
        const Ints number = wasm_f32x4_eq(value.vector, value.vector);
        wasm_v128_store(to, wasm_v128_bitselect(value.vector, all(0x7FC00000), number));
    }

    // Section 4's eight lanes, for floats.h.
    struct Eight {
        // Converting costs more than multiplying: for several rows, f16 is converted once.
        template <ggml_type kType>
        static constexpr bool kConvertsOnce = kType == GGML_TYPE_F16;
        struct Vector {
            Floats low;
            Floats high;
        };

        static Vector zero() { return {all(0.0F), all(0.0F)}; }
        // Eight numbers of F32, F16 or BF16.
        template <ggml_type kType>
        static Vector load(const std::byte* from) {
            if constexpr (kType == GGML_TYPE_F32) {
                return {{wasm_v128_load(from)}, {wasm_v128_load(from + 16)}};
            } else {
                const Ints low = wasm_i32x4_load16x4(from);
                const Ints high = wasm_i32x4_load16x4(from + 8);
                if constexpr (kType == GGML_TYPE_F16) return {from_extended_halves(low), from_extended_halves(high)};
                return {{left<16>(low)}, {left<16>(high)}};
            }
        }
        static void store(float* to, Vector value) {
            Wasm::store(to, value.low);
            Wasm::store(to + 4, value.high);
        }
        // Two roundings.
        static Vector add_product(Vector sum, Vector a, Vector b) {
            return {add(sum.low, times(a.low, b.low)), add(sum.high, times(a.high, b.high))};
        }
    };
};

// Weights stay as they lie: a vector is 16 columns of one output, and what the dot product adds up last are its lanes.
// For the types that load their weights by Words::load_weights16 alone.
struct WasmWhole : Wasm {
    static void load_weights16(const std::byte* from, std::size_t stride, Ints* words) {
        for (std::size_t row = 0; row < kRows; ++row)
            words[row] = load(from + row * stride);
    }
    template <int kMax, int kWords, class Integers>
    static Ints add_scaled(Ints sum, const Ints* weights, Integers integers, Ints scale) {
        return add(sum, times(dot<kMax, kWords>(weights, integers), scale));
    }
    template <int kMax, int kWords, class Integers>
    static Ints dot(const Ints* weights, Integers integers) {
        static_assert(kWords == 4 || kWords == 8);
        Ints sums[kRows];
        for (int i = 0; i < kWords; i += 4) {
            const Ints q = load(integers.q + 4 * i);
            for (int row = 0; row < kRows; ++row) {
                const Ints products = add(wasm_i32x4_dot_i16x8(even<kMax>(weights[i + row]), even<255>(q)),
                                          wasm_i32x4_dot_i16x8(odd<kMax>(weights[i + row]), odd<255>(q)));
                sums[row] = i == 0 ? products : add(sums[row], products);
            }
        }
        return add_up(add_pairs_of(sums[0], sums[1]), add_pairs_of(sums[2], sums[3]));
    }

  private:
    // Bytes 0, 2, 4… or 1, 3, 5… as 16 bits; kMax 255 says that they are signed.
    template <int kMax>
    static Ints even(Ints bytes) {
        if constexpr (kMax > 127) return wasm_i16x8_shr(wasm_i16x8_shl(bytes, 8), 8);
        return both(bytes, all(0x00FF00FF));
    }
    template <int kMax>
    static Ints odd(Ints bytes) {
        return kMax > 127 ? wasm_i16x8_shr(bytes, 8) : wasm_u16x8_shr(bytes, 8);
    }
    // a0 + a2, b0 + b2, a1 + a3, b1 + b3.
    static Ints add_pairs_of(Ints a, Ints b) {
        return add(wasm_i32x4_shuffle(a, b, 0, 4, 1, 5), wasm_i32x4_shuffle(a, b, 2, 6, 3, 7));
    }
    static Ints add_up(Ints ab, Ints cd) {
        return add(wasm_i64x2_shuffle(ab, cd, 0, 2), wasm_i64x2_shuffle(ab, cd, 1, 3));
    }
};

}  // namespace kvasir::portable
