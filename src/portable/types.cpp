#include "portable/types.h"

#include <array>

namespace kvasir::portable {
namespace {

struct Entry {
    ggml_type type;
    TypeTraits traits;
};

constexpr std::array<Entry, 26> kTypes = {{
    {GGML_TYPE_F32, {Form::f32, 1, 4, false}},           {GGML_TYPE_F16, {Form::f32, 1, 2, false}},
    {GGML_TYPE_BF16, {Form::f32, 1, 2, false}},          {GGML_TYPE_Q4_0, {Form::q8x32, 32, 18, false}},
    {GGML_TYPE_Q4_1, {Form::q8x32, 32, 20, true}},       {GGML_TYPE_Q5_0, {Form::q8x32, 32, 22, false}},
    {GGML_TYPE_Q5_1, {Form::q8x32, 32, 24, true}},       {GGML_TYPE_Q8_0, {Form::q8x32, 32, 34, false}},
    {GGML_TYPE_IQ4_NL, {Form::q8x32, 32, 18, false}},    {GGML_TYPE_MXFP4, {Form::q8x32, 32, 17, false}},
    {GGML_TYPE_NVFP4, {Form::q8x32, 64, 36, true}},      {GGML_TYPE_Q2_K, {Form::q8x256, 256, 84, true}},
    {GGML_TYPE_Q3_K, {Form::q8x256, 256, 110, false}},   {GGML_TYPE_Q4_K, {Form::q8x256, 256, 144, true}},
    {GGML_TYPE_Q5_K, {Form::q8x256, 256, 176, true}},    {GGML_TYPE_Q6_K, {Form::q8x256, 256, 210, false}},
    {GGML_TYPE_IQ4_XS, {Form::q8x256, 256, 136, false}}, {GGML_TYPE_TQ1_0, {Form::q8x256, 256, 54, false}},
    {GGML_TYPE_TQ2_0, {Form::q8x256, 256, 66, false}},   {GGML_TYPE_IQ2_XXS, {Form::q8x256, 256, 66, false}},
    {GGML_TYPE_IQ2_XS, {Form::q8x256, 256, 74, false}},  {GGML_TYPE_IQ2_S, {Form::q8x256, 256, 82, false}},
    {GGML_TYPE_IQ3_XXS, {Form::q8x256, 256, 98, false}}, {GGML_TYPE_IQ3_S, {Form::q8x256, 256, 110, false}},
    {GGML_TYPE_IQ1_S, {Form::q8x256, 256, 50, false}},   {GGML_TYPE_IQ1_M, {Form::q8x256, 256, 56, false}},
}};

// By ggml's number, so that a lookup costs nothing next to a product.
constexpr auto kByNumber = [] {
    std::array<const TypeTraits*, GGML_TYPE_COUNT> table{};
    for (const Entry& entry : kTypes)
        table[entry.type] = &entry.traits;
    return table;
}();

}  // namespace

const TypeTraits* find_traits(ggml_type type) {
    return type >= 0 && type < GGML_TYPE_COUNT ? kByNumber[type] : nullptr;
}

const TypeTraits& traits(ggml_type type) {
    return *kByNumber[type];
}

Status check(const Matrix& matrix) {
    const TypeTraits* known = find_traits(matrix.type);
    if (known == nullptr) {
        return fail(ErrorKind::unsupported, "{} does not define weights of type {}", kName,
                    static_cast<int>(matrix.type));
    }
    if (matrix.columns == 0 || matrix.columns > kMaxColumns || matrix.columns % known->stored_columns != 0) {
        return fail(ErrorKind::unsupported, "{} does not define rows of {} columns for weights of type {}", kName,
                    matrix.columns, ggml_type_name(matrix.type));
    }
    return {};
}

}  // namespace kvasir::portable
