// ggml's own products for AArch64, to be counted beside the kernels.
#pragma once

#include <cstddef>
#include <vector>

#include "portable/types.h"

namespace kvasir::portable::test {

struct GgmlDot {
    using Function = void (*)(int columns, float* out, std::size_t out_stride, const void* weights,
                              std::size_t weights_stride, const void* row, std::size_t row_stride, int count);

    ggml_type type;
    ggml_type row_type;  // of the rows it takes
    Function function;
    // Has a form that multiplies two rows of weights with two of activations, where the compiler's target has i8mm.
    bool by_two;
};

// Ready to be called.
const std::vector<GgmlDot>& ggml_dots();

}  // namespace kvasir::portable::test
