// The table of an instruction set that has lanes for tiles.h.
#pragma once

#include "portable/floats.h"
#include "portable/kernel_table.h"
#include "portable/rows.h"
#include "portable/tiles.h"

namespace kvasir::portable {

template <class V>
Multiply multiply_of(ggml_type type) {
    using T = Tiles<V>;
    switch (type) {
        case GGML_TYPE_F32:
            return FloatProducts<V>::template multiply<GGML_TYPE_F32>;
        case GGML_TYPE_F16:
            return FloatProducts<V>::template multiply<GGML_TYPE_F16>;
        case GGML_TYPE_BF16:
            return FloatProducts<V>::template multiply<GGML_TYPE_BF16>;
        case GGML_TYPE_Q4_0:
            return T::template multiply_narrow<Q4_0>;
        case GGML_TYPE_Q4_1:
            return T::template multiply_narrow<Q4_1>;
        case GGML_TYPE_Q5_0:
            return T::template multiply_narrow<Q5_0>;
        case GGML_TYPE_Q5_1:
            return T::template multiply_narrow<Q5_1>;
        case GGML_TYPE_Q8_0:
            return T::template multiply_narrow<Q8_0>;
        case GGML_TYPE_IQ4_NL:
            return T::template multiply_narrow<Iq4Nl>;
        case GGML_TYPE_MXFP4:
            return T::template multiply_narrow<Mxfp4>;
        case GGML_TYPE_NVFP4:
            return T::template multiply_narrow<Nvfp4>;
        case GGML_TYPE_Q2_K:
            return T::template multiply_wide<Q2K>;
        case GGML_TYPE_Q3_K:
            return T::template multiply_wide<Q3K>;
        case GGML_TYPE_Q4_K:
            return T::template multiply_wide<Q4K>;
        case GGML_TYPE_Q5_K:
            return T::template multiply_wide<Q5K>;
        case GGML_TYPE_Q6_K:
            return T::template multiply_wide<Q6K>;
        case GGML_TYPE_IQ4_XS:
            return T::template multiply_wide<Iq4Xs>;
        default:
            return plain_table().multiply(type);
    }
}

template <class V>
KernelTable table_of_lanes(Isa isa, Multiply (*multiply)(ggml_type)) {
    using R = Rows<V>;
    return {isa, V::kRows, multiply, R::quantise, R::read, R::prepare, R::activate, R::scale_and_bias, R::to_result, R::from_result};
}

}  // namespace kvasir::portable
