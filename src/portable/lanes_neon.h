// Four 32-bit lanes: one per output row of a tile (see tiles.h). Armv8.0 is enough; what has more derives from
// NeonLanes. Included only where the compiler's target is AArch64.
#pragma once

#include <arm_neon.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "portable/types.h"

namespace kvasir::portable {

// Section 4's eight lanes, for floats.h. A template over the file's tag; see kernel_table.h.
template <class Tag>
struct EightNeon {
    struct Vector {
        float32x4_t low;
        float32x4_t high;
    };

    static Vector zero() { return {vdupq_n_f32(0.0F), vdupq_n_f32(0.0F)}; }
    // Eight numbers of F32, F16 or BF16.
    template <ggml_type kType>
    static Vector load(const std::byte* from) {
        const auto* bytes = reinterpret_cast<const std::uint8_t*>(from);
        if constexpr (kType == GGML_TYPE_F32) {
            return {vreinterpretq_f32_u8(vld1q_u8(bytes)), vreinterpretq_f32_u8(vld1q_u8(bytes + 16))};
        } else if constexpr (kType == GGML_TYPE_F16) {
            const float16x8_t halves = vreinterpretq_f16_u8(vld1q_u8(bytes));
            return {vcvt_f32_f16(vget_low_f16(halves)), vcvt_high_f32_f16(halves)};
        } else {
            const uint16x8_t upper = vreinterpretq_u16_u8(vld1q_u8(bytes));
            return {vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(upper), 16)),
                    vreinterpretq_f32_u32(vshll_high_n_u16(upper, 16))};
        }
    }
    static void store(float* to, Vector value) {
        vst1q_f32(to, value.low);
        vst1q_f32(to + 4, value.high);
    }
    // Two roundings.
    static Vector add_product(Vector sum, Vector a, Vector b) {
        return {vaddq_f32(sum.low, vmulq_f32(a.low, b.low)), vaddq_f32(sum.high, vmulq_f32(a.high, b.high))};
    }
};

// All but the products of bytes.
template <class Tag>
struct NeonLanes {
    static constexpr int kRows = 4;
    // A single row has kernels of its own.
    static constexpr bool kSumInRegister = false;
    using Ints = int32x4_t;
    using Floats = float32x4_t;
    using Eight = EightNeon<Tag>;

    static Ints zero() { return vdupq_n_s32(0); }
    static Ints all(int value) { return vdupq_n_s32(value); }
    static Floats all(float value) { return vdupq_n_f32(value); }

    // One word for all lanes; a word or number of its own for each.
    static Ints broadcast(const void* from) {
        std::int32_t value;
        std::memcpy(&value, from, 4);
        return vdupq_n_s32(value);
    }
    static Ints load(const void* from) { return words_of(vld1q_u8(static_cast<const std::uint8_t*>(from))); }
    static Floats load(const float* from) { return vld1q_f32(from); }
    static void store(float* to, Floats value) { vst1q_f32(to, value); }

    // Words 0..3 of the 16 bytes at `from`, and of those `stride` bytes further, for each row.
    static void load16(const std::byte* from, std::size_t stride, Ints* words) {
        const Ints row0 = load(from);
        const Ints row1 = load(from + stride);
        const Ints row2 = load(from + 2 * stride);
        const Ints row3 = load(from + 3 * stride);
        const int64x2_t even01 = vreinterpretq_s64_s32(vtrn1q_s32(row0, row1));  // words 0 and 2
        const int64x2_t odd01 = vreinterpretq_s64_s32(vtrn2q_s32(row0, row1));   // words 1 and 3
        const int64x2_t even23 = vreinterpretq_s64_s32(vtrn1q_s32(row2, row3));
        const int64x2_t odd23 = vreinterpretq_s64_s32(vtrn2q_s32(row2, row3));
        words[0] = vreinterpretq_s32_s64(vtrn1q_s64(even01, even23));
        words[1] = vreinterpretq_s32_s64(vtrn1q_s64(odd01, odd23));
        words[2] = vreinterpretq_s32_s64(vtrn2q_s64(even01, even23));
        words[3] = vreinterpretq_s32_s64(vtrn2q_s64(odd01, odd23));
    }
    // The sums of each vector's lanes.
    static Ints sums_of(Ints row0, Ints row1, Ints row2, Ints row3) {
        return vpaddq_s32(vpaddq_s32(row0, row1), vpaddq_s32(row2, row3));
    }
    // The f16 at `from` of each row, in the low half of its lane.
    static Ints load_halves(const std::byte* from, std::size_t stride) {
        std::uint16_t halves[kRows];
        for (std::size_t row = 0; row < kRows; ++row)
            std::memcpy(&halves[row], from + row * stride, 2);
        return vreinterpretq_s32_u32(vmovl_u16(vld1_u16(halves)));
    }
    static Ints load_words(const std::byte* from, std::size_t stride) {
        std::int32_t words[kRows];
        for (std::size_t row = 0; row < kRows; ++row)
            std::memcpy(&words[row], from + row * stride, 4);
        return vld1q_s32(words);
    }
    // table[byte at `from`] of each row.
    static Floats load_table(const std::byte* from, std::size_t stride, const float* table) {
        float values[kRows];
        for (std::size_t row = 0; row < kRows; ++row)
            values[row] = table[static_cast<std::uint8_t>(from[row * stride])];
        return vld1q_f32(values);
    }
    static Floats from_halves(Ints halves) {
        return vcvt_f32_f16(vreinterpret_f16_u16(vmovn_u32(vreinterpretq_u32_s32(halves))));
    }

    static Ints both(Ints a, Ints b) { return vandq_s32(a, b); }
    static Ints either(Ints a, Ints b) { return vorrq_s32(a, b); }
    template <int kBits>
    static Ints right(Ints a) {
        if constexpr (kBits == 0) return a;
        if constexpr (kBits != 0) return vreinterpretq_s32_u32(vshrq_n_u32(vreinterpretq_u32_s32(a), kBits));
    }
    template <int kBits>
    static Ints left(Ints a) {
        return vshlq_n_s32(a, kBits);
    }
    template <int kBits>
    static Ints right_signed(Ints a) {
        return vshrq_n_s32(a, kBits);
    }
    template <int kBits>
    static Ints right_signed16(Ints a) {
        return vreinterpretq_s32_s16(vshrq_n_s16(vreinterpretq_s16_s32(a), kBits));
    }
    template <int kBits>
    static Ints left16(Ints a) {
        return vreinterpretq_s32_s16(vshlq_n_s16(vreinterpretq_s16_s32(a), kBits));
    }
    static Ints add(Ints a, Ints b) { return vaddq_s32(a, b); }
    static Ints subtract(Ints a, Ints b) { return vsubq_s32(a, b); }
    static Ints subtract_bytes(Ints a, Ints b) { return vreinterpretq_s32_s8(vsubq_s8(bytes_of(a), bytes_of(b))); }
    static Ints times(Ints a, Ints b) { return vmulq_s32(a, b); }
    // Of every byte.
    static Ints high_nibbles(Ints a) { return words_of(vshrq_n_u8(vreinterpretq_u8_s32(a), 4)); }
    // Byte-wise table[nibble]; the table has 16 bytes.
    static Ints look_up(const std::int8_t* table, Ints nibbles) {
        return vreinterpretq_s32_s8(vqtbl1q_s8(vld1q_s8(table), vreinterpretq_u8_s32(nibbles)));
    }

    // Signed bytes are multiplied as they are (kMax 255 says that they are signed).
    static constexpr int kSignedOffset = 0;
    static Ints from_signed(Ints bytes) { return bytes; }

    // A scale as `add_scaled` wants it, from an int16 in each lane.
    static Ints make_scale(Ints value) { return value; }
    // sum + scale × Σ weights · integers: `kWords` words of four columns, weights up to kMax, unsigned, and
    // integers(i), the signed bytes that word i is multiplied with.
    template <int kMax, int kWords, class Integers>
    static Ints add_scaled(Ints sum, const Ints* weights, Integers integers, Ints scale) {
        return vmlaq_s32(sum, Tag::template dot<kMax, kWords>(weights, integers), scale);
    }
    // sum + Σ pairs of int16.
    static Ints add_pairs(Ints sum, Ints pairs, Ints integers) {
        const int16x8_t a = vreinterpretq_s16_s32(pairs);
        const int16x8_t b = vreinterpretq_s16_s32(integers);
        const Ints low = vmull_s16(vget_low_s16(a), vget_low_s16(b));
        return vaddq_s32(sum, vpaddq_s32(low, vmull_high_s16(a, b)));
    }

    static Floats convert(Ints a) { return vcvtq_f32_s32(a); }
    static Floats add(Floats a, Floats b) { return vaddq_f32(a, b); }
    static Floats subtract(Floats a, Floats b) { return vsubq_f32(a, b); }
    static Floats times(Floats a, Floats b) { return vmulq_f32(a, b); }
    static void store_canonical(float* to, Floats value) {
        const Floats canonical = vreinterpretq_f32_u32(vdupq_n_u32(0x7FC00000U));
        vst1q_f32(to, vbslq_f32(vceqq_f32(value, value), value, canonical));
    }

  protected:
    static int8x16_t bytes_of(Ints words) { return vreinterpretq_s8_s32(words); }

  private:
    static Ints words_of(uint8x16_t bytes) { return vreinterpretq_s32_u8(bytes); }
};

// Products of bytes by widening multiplications, added in 16 bits as long as none can overflow.
struct Neon : NeonLanes<Neon> {
    template <int kMax, int kWords, class Integers>
    static Ints dot(const Ints* weights, Integers integers) {
        constexpr int kSafe = 32767 / (127 * (kMax > 127 ? 128 : kMax));
        constexpr int kGroup = kSafe < kWords ? kSafe : kWords;
        Ints rows01 = zero();  // lanes 0 and 1 are of row 0
        Ints rows23 = zero();
        for (int start = 0; start < kWords; start += kGroup) {
            int16x8_t low = vdupq_n_s16(0);
            int16x8_t high = vdupq_n_s16(0);
            for (int i = start; i < start + kGroup && i < kWords; ++i) {
                const int8x16_t weight = bytes_of(weights[i]);
                const int8x16_t integer = bytes_of(integers(i));
                low = vmlal_s8(low, vget_low_s8(weight), vget_low_s8(integer));
                high = vmlal_high_s8(high, weight, integer);
            }
            rows01 = vpadalq_s16(rows01, low);
            rows23 = vpadalq_s16(rows23, high);
        }
        return vpaddq_s32(rows01, rows23);
    }
};

// For one row of activations: a vector of weights is 16 columns of one output, as they lie in memory, and what the dot
// product adds up last are its lanes. Cheaper than turning weights into words of four outputs, which pays where rows
// share it. Tag has row_sums<kMax, kWords>(weights, q): of an output, whose vectors are four apart.
template <class Tag>
struct NeonSingleLanes : NeonLanes<Tag> {
    using typename NeonLanes<Tag>::Ints;

    static void load_weights16(const std::byte* from, std::size_t stride, Ints* rows) {
        for (std::size_t row = 0; row < NeonLanes<Tag>::kRows; ++row)
            rows[row] = NeonLanes<Tag>::load(from + row * stride);
    }
    template <int kMax, int kWords, class Integers>
    static Ints dot(const Ints* weights, Integers integers) {
        static_assert(kWords == 4 || kWords == 8);
        return NeonLanes<Tag>::sums_of(Tag::template row_sums<kMax, kWords>(weights, integers.q),
                                       Tag::template row_sums<kMax, kWords>(weights + 1, integers.q),
                                       Tag::template row_sums<kMax, kWords>(weights + 2, integers.q),
                                       Tag::template row_sums<kMax, kWords>(weights + 3, integers.q));
    }
};

struct NeonSingle : NeonSingleLanes<NeonSingle> {
    // Products are added in 16 bits as long as none can overflow: two of any bytes, four of weights up to 64.
    template <int kMax, int kWords>
    static Ints row_sums(const Ints* weights, const std::int8_t* q) {
        int16x8_t pairs = add_products(vdupq_n_s16(0), weights[0], q);
        if constexpr (kWords == 8 && kMax <= 64) pairs = add_products(pairs, weights[4], q + 16);
        const Ints sums = vpaddlq_s16(pairs);
        if constexpr (kWords == 8 && kMax > 64)
            return vpadalq_s16(sums, add_products(vdupq_n_s16(0), weights[4], q + 16));
        return sums;
    }

  private:
    static int16x8_t add_products(int16x8_t sum, Ints weights, const std::int8_t* q) {
        const int8x16_t a = vld1q_s8(q);
        return vmlal_high_s8(vmlal_s8(sum, vget_low_s8(bytes_of(weights)), vget_low_s8(a)), bytes_of(weights), a);
    }
};

}  // namespace kvasir::portable
