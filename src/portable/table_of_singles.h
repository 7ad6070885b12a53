// The table of an instruction set whose lanes differ by what they multiply: Many for several rows. For a single row
// Whole, whose vectors hold a piece of one output's weights as it lies in memory, but Few for the types of two and
// three bits, where many columns come from one piece.
#pragma once

#include "portable/single_row.h"
#include "portable/table_of_lanes.h"

namespace kvasir::portable {

template <class Many, class Few, class Whole>
Multiply multiply_of_singles(ggml_type type) {
    switch (type) {
        case GGML_TYPE_Q4_0:
            return multiply_narrow<Many, Whole, Q4_0>;
        case GGML_TYPE_Q4_1:
            return multiply_narrow<Many, Whole, Q4_1>;
        case GGML_TYPE_Q8_0:
            return multiply_narrow<Many, Whole, Q8_0>;
        case GGML_TYPE_IQ4_NL:
            return multiply_narrow<Many, Whole, Iq4Nl>;
        case GGML_TYPE_MXFP4:
            return multiply_narrow<Many, Whole, Mxfp4>;
        case GGML_TYPE_Q2_K:
            return multiply_wide<Many, Few, Q2K>;
        case GGML_TYPE_Q3_K:
            return multiply_wide<Many, Few, Q3K>;
        case GGML_TYPE_Q4_K:
            return multiply_wide<Many, Whole, Q4K>;
        case GGML_TYPE_Q5_K:
            return multiply_wide<Many, Whole, Q5K>;
        case GGML_TYPE_Q6_K:
            return multiply_wide<Many, Whole, Q6K>;
        case GGML_TYPE_IQ4_XS:
            return multiply_wide<Many, Whole, Iq4Xs>;
        default:
            return multiply_of<Many>(type);
    }
}

template <class Many, class Few, class Whole>
KernelTable table_of_singles(Isa isa) {
    return table_of_lanes<Many>(isa, multiply_of_singles<Many, Few, Whole>);
}

}  // namespace kvasir::portable
