#include "portable/elsewhere/ggml_dots.h"

#include "ggml-cpu/quants.h"
#include "ggml-cpu/vec.h"
#include "portable/numbers.h"

// Defined in the part of ggml that makes threads, which is not linked.
extern "C" float ggml_table_f32_e8m0_half[1 << 8];
float ggml_table_f32_e8m0_half[1 << 8];

namespace kvasir::portable::test {
namespace {

GgmlDot::Function of_halves(void (*function)(int, float*, std::size_t, ggml_fp16_t*, std::size_t, ggml_fp16_t*,
                                             std::size_t, int)) {
    return reinterpret_cast<GgmlDot::Function>(function);
}
GgmlDot::Function of_bfloats(void (*function)(int, float*, std::size_t, ggml_bf16_t*, std::size_t, ggml_bf16_t*,
                                              std::size_t, int)) {
    return reinterpret_cast<GgmlDot::Function>(function);
}

std::vector<GgmlDot> make_dots() {
    for (std::size_t e = 0; e < 256; ++e)
        ggml_table_f32_e8m0_half[e] = e8m0h(static_cast<std::uint8_t>(e));
    return {
        {GGML_TYPE_Q4_K, GGML_TYPE_Q8_K, ggml_vec_dot_q4_K_q8_K, true},
        {GGML_TYPE_Q5_K, GGML_TYPE_Q8_K, ggml_vec_dot_q5_K_q8_K, false},
        {GGML_TYPE_Q6_K, GGML_TYPE_Q8_K, ggml_vec_dot_q6_K_q8_K, true},
        {GGML_TYPE_Q2_K, GGML_TYPE_Q8_K, ggml_vec_dot_q2_K_q8_K, false},
        {GGML_TYPE_Q3_K, GGML_TYPE_Q8_K, ggml_vec_dot_q3_K_q8_K, false},
        {GGML_TYPE_IQ4_XS, GGML_TYPE_Q8_K, ggml_vec_dot_iq4_xs_q8_K, false},
        {GGML_TYPE_Q8_0, GGML_TYPE_Q8_0, ggml_vec_dot_q8_0_q8_0, true},
        {GGML_TYPE_Q4_0, GGML_TYPE_Q8_0, ggml_vec_dot_q4_0_q8_0, true},
        {GGML_TYPE_MXFP4, GGML_TYPE_Q8_0, ggml_vec_dot_mxfp4_q8_0, false},
        {GGML_TYPE_F16, GGML_TYPE_F16, of_halves(ggml_vec_dot_f16), false},
        {GGML_TYPE_BF16, GGML_TYPE_BF16, of_bfloats(ggml_vec_dot_bf16), false},
    };
}

}  // namespace

const std::vector<GgmlDot>& ggml_dots() {
    static const std::vector<GgmlDot> dots = make_dots();
    return dots;
}

}  // namespace kvasir::portable::test
