// The lanes of lanes_neon.h with the dot product instructions of Armv8.2. Included only where the compiler may use
// them.
#pragma once

#include "portable/lanes_neon.h"

namespace kvasir::portable {

template <class Tag>
struct NeonDotLanes : NeonLanes<Tag> {
    using Base = NeonLanes<Tag>;
    using typename Base::Ints;

    // The instruction takes one of a vector's four words for all lanes: integers are read four words at a time.
    template <int kMax, int kWords, class Integers>
    static Ints dot(const Ints* weights, Integers integers) {
        static_assert(kWords % 4 == 0);
        Ints sum = Base::zero();
        for (int i = 0; i < kWords; i += 4) {
            const int8x16_t four = vld1q_s8(integers.q + 4 * i);
            sum = vdotq_laneq_s32(sum, Base::bytes_of(weights[i]), four, 0);
            sum = vdotq_laneq_s32(sum, Base::bytes_of(weights[i + 1]), four, 1);
            sum = vdotq_laneq_s32(sum, Base::bytes_of(weights[i + 2]), four, 2);
            sum = vdotq_laneq_s32(sum, Base::bytes_of(weights[i + 3]), four, 3);
        }
        return sum;
    }
};

template <class Tag>
struct NeonDotSingleLanes : NeonSingleLanes<Tag> {
    using Base = NeonSingleLanes<Tag>;
    using typename Base::Ints;

    template <int kMax, int kWords>
    static Ints row_sums(const Ints* weights, const std::int8_t* q) {
        Ints sums = vdotq_s32(Base::zero(), Base::bytes_of(weights[0]), vld1q_s8(q));
        if constexpr (kWords == 8) sums = vdotq_s32(sums, Base::bytes_of(weights[4]), vld1q_s8(q + 16));
        return sums;
    }
};

struct NeonDot : NeonDotLanes<NeonDot> {};
struct NeonDotSingle : NeonDotSingleLanes<NeonDotSingle> {};

}  // namespace kvasir::portable
