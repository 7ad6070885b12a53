// The lanes of lanes_neon_dot.h with the matrix products of Armv8.6, where the compiler may use them: two outputs times
// two rows of activations, eight columns each, in one instruction. For pair_tiles.h.
#pragma once

#include "portable/lanes_neon_dot.h"

namespace kvasir::portable {

struct NeonI8mm : NeonDotLanes<NeonI8mm> {};
struct NeonI8mmSingle : NeonDotSingleLanes<NeonI8mmSingle> {};

// Of 16 bytes of four outputs: the first eight of outputs 0 and 1, of outputs 2 and 3, then the other eight.
struct NeonPairs : NeonLanes<NeonPairs> {
    // Of outputs 0 and 1 (2 and 3): output 0 times the first row, times the second, output 1 likewise.
    struct Sums {
        Ints outputs01;
        Ints outputs23;
    };

    static Sums no_sums() { return {zero(), zero()}; }
    static void load_weights16(const std::byte* from, std::size_t stride, Ints* words) {
        const int64x2_t row0 = vreinterpretq_s64_s32(load(from));
        const int64x2_t row1 = vreinterpretq_s64_s32(load(from + stride));
        const int64x2_t row2 = vreinterpretq_s64_s32(load(from + 2 * stride));
        const int64x2_t row3 = vreinterpretq_s64_s32(load(from + 3 * stride));
        words[0] = vreinterpretq_s32_s64(vzip1q_s64(row0, row1));
        words[1] = vreinterpretq_s32_s64(vzip1q_s64(row2, row3));
        words[2] = vreinterpretq_s32_s64(vzip2q_s64(row0, row1));
        words[3] = vreinterpretq_s32_s64(vzip2q_s64(row2, row3));
    }
    // Sixteen columns of two rows, as `products` wants them.
    static void interleave16(const std::int8_t* first, const std::int8_t* second, std::int8_t* pair) {
        const int64x2_t a = vreinterpretq_s64_s8(vld1q_s8(first));
        const int64x2_t b = vreinterpretq_s64_s8(vld1q_s8(second));
        vst1q_s8(pair, vreinterpretq_s8_s64(vzip1q_s64(a, b)));
        vst1q_s8(pair + 16, vreinterpretq_s8_s64(vzip2q_s64(a, b)));
    }
    // `pair` has the integers of two rows, eight columns of each in turn.
    template <int kWords>
    static Sums products(const Ints* weights, const std::int8_t* pair) {
        static_assert(kWords == 4 || kWords == 8);
        Sums sums = no_sums();
        for (int i = 0; i < kWords; i += 2) {
            const int8x16_t integers = vld1q_s8(pair + 8 * i);
            sums.outputs01 = vmmlaq_s32(sums.outputs01, bytes_of(weights[i]), integers);
            sums.outputs23 = vmmlaq_s32(sums.outputs23, bytes_of(weights[i + 1]), integers);
        }
        return sums;
    }
    // A scale for each output as `add_scaled` wants it.
    static Sums spread(Ints scale) { return {vzip1q_s32(scale, scale), vzip2q_s32(scale, scale)}; }
    static Sums add_scaled(Sums sums, Sums products, Sums scale) {
        return {vmlaq_s32(sums.outputs01, products.outputs01, scale.outputs01),
                vmlaq_s32(sums.outputs23, products.outputs23, scale.outputs23)};
    }
    // By outputs.
    static Ints of_first_row(Sums sums) { return vuzp1q_s32(sums.outputs01, sums.outputs23); }
    static Ints of_second_row(Sums sums) { return vuzp2q_s32(sums.outputs01, sums.outputs23); }
};

}  // namespace kvasir::portable
