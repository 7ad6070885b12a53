// The nouns of the arithmetic portable/1 (docs/portable-arithmetic.md): forms of rows, matrices, functions.
#pragma once

#include <ggml.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/bytes.h"
#include "base/result.h"

namespace kvasir::portable {

inline constexpr std::string_view kName = "portable/1";

// How a row travels and is multiplied. The bytes of a row are its blocks in order (section 2).
enum class Form : std::uint8_t {
    f32 = 0,     // as it is
    q8x256 = 1,  // blocks of 256: f32 scale, 256 × i8
    q8x32 = 2,   // blocks of 32: f32 scale, 32 × i8
};

// Columns that share one scale; 1 for f32.
constexpr std::size_t block_columns(Form form) {
    return form == Form::q8x256 ? 256 : form == Form::q8x32 ? 32 : 1;
}
constexpr std::size_t block_bytes(Form form) {
    return form == Form::f32 ? 4 : 4 + block_columns(form);
}
// `columns` must be a multiple of block_columns.
constexpr std::size_t row_bytes(Form form, std::size_t columns) {
    return columns / block_columns(form) * block_bytes(form);
}

inline constexpr std::size_t kMaxColumns = std::size_t{1} << 24;

// Weights as they lie in a GGUF file: `rows` rows of `columns` numbers each, no gaps. Owns nothing. 2-byte alignment of
// `data` is not needed.
struct Matrix {
    ggml_type type = GGML_TYPE_F32;
    std::size_t rows = 0;
    std::size_t columns = 0;
    const std::byte* data = nullptr;
};

// What a weight type means for the arithmetic.
struct TypeTraits {
    Form form = Form::f32;
    std::size_t stored_columns = 1;  // of one block in the file
    std::size_t stored_bytes = 4;    // of one block in the file
    bool minimums = false;           // there are N and m (section 3)
};

// Null for a type that is no part of portable/1.
const TypeTraits* find_traits(ggml_type type);
// Of a type that find_traits knows.
const TypeTraits& traits(ggml_type type);

// Bytes of one row of weights; `columns` must be a multiple of the type's stored_columns.
inline std::size_t weight_row_bytes(ggml_type type, std::size_t columns) {
    const TypeTraits& known = traits(type);
    return columns / known.stored_columns * known.stored_bytes;
}

// Refuses types and row lengths that portable/1 does not define, by name. Everything else here expects matrices that
// passed.
Status check(const Matrix& matrix);

// The values are those of kvasir::Activation (gguf/recipe.h) and of the wire.
enum class Function : std::uint8_t {
    silu = 0,
    gelu = 1,
    relu = 2,
    relu_squared = 3,  // ungated only
    swiglu_oai = 4,    // gated only, as are those below
    swiglu_clamp = 5,
    swiglu_limited = 6,
};

// A function with its parameters (section 5).
struct Activation {
    Function function = Function::silu;
    float alpha = 0.0F;  // swiglu_oai
    float limit = 0.0F;  // the three last
};

// Of a result row (section 7): blocks of 256 columns, the last may be shorter.
inline constexpr std::size_t kResultBlock = 256;
constexpr std::size_t result_bytes(std::size_t columns) {
    return 2 * columns + 2 * ((columns + kResultBlock - 1) / kResultBlock);
}

}  // namespace kvasir::portable
