// Products with weights of F32, F16 and BF16: the eight lanes of section 4 are the lanes of V::Eight. Four output rows
// at a time hide the additions' latency.
#pragma once

#include <bit>
#include <cstddef>
#include <cstring>
#include <memory>

#include "portable/numbers.h"
#include "portable/prepared.h"

namespace kvasir::portable {

template <class V>
class FloatProducts {
    using Eight = typename V::Eight;

  public:
    template <ggml_type kType>
    static void multiply(const Matrix& matrix, const PreparedRows& rows, std::size_t begin, std::size_t end, float* out,
                         std::size_t stride) {
        if constexpr (converts_once<kType>()) {
            if (rows.count() > 1) return multiply_converted<kType>(matrix, rows, begin, end, out, stride);
        }
        std::size_t output = begin;
        for (; output + 4 <= end; output += 4)
            outputs<kType, 4>(matrix, rows, output, out, stride);
        for (; output < end; ++output)
            outputs<kType, 1>(matrix, rows, output, out, stride);
    }

  private:
    template <ggml_type kType>
    static constexpr bool converts_once() {
        if constexpr (requires { Eight::template kConvertsOnce<kType>; }) return Eight::template kConvertsOnce<kType>;
        return false;
    }
    static constexpr std::size_t bytes_of(ggml_type type) { return type == GGML_TYPE_F32 ? 4 : 2; }

    // Four output rows become f32 once for all rows of activations.
    template <ggml_type kType>
    static void multiply_converted(const Matrix& matrix, const PreparedRows& rows, std::size_t begin, std::size_t end,
                                   float* out, std::size_t stride) {
        const std::unique_ptr<float[]> converted(new float[4 * matrix.columns]);
        const auto* bytes = reinterpret_cast<const std::byte*>(converted.get());
        for (std::size_t output = begin; output < end; output += 4) {
            const std::size_t count = end - output < 4 ? end - output : 4;
            for (std::size_t i = 0; i < count; ++i)
                convert<kType>(matrix, output + i, converted.get() + i * matrix.columns);
            const Matrix some{GGML_TYPE_F32, count, matrix.columns, bytes};
            multiply<GGML_TYPE_F32>(some, rows, 0, count, out + output, stride);
        }
    }
    template <ggml_type kType>
    static void convert(const Matrix& matrix, std::size_t output, float* to) {
        constexpr std::size_t kBytes = bytes_of(kType);
        const std::byte* from = matrix.data + output * matrix.columns * kBytes;
        const std::size_t whole = matrix.columns & ~std::size_t{7};
        for (std::size_t column = 0; column < whole; column += 8)
            Eight::store(to + column, Eight::template load<kType>(from + column * kBytes));
        if (whole == matrix.columns) return;
        std::byte rest[32] = {};
        float eight[8];
        std::memcpy(rest, from + whole * kBytes, (matrix.columns - whole) * kBytes);
        Eight::store(eight, Eight::template load<kType>(rest));
        std::memcpy(to + whole, eight, (matrix.columns - whole) * sizeof(float));
    }

    template <ggml_type kType, int kOutputs>
    static void outputs(const Matrix& matrix, const PreparedRows& rows, std::size_t output, float* out,
                        std::size_t stride) {
        const std::size_t row_bytes = matrix.columns * bytes_of(kType);
        const std::byte* weights = matrix.data + output * row_bytes;
        for (std::size_t row = 0; row < rows.count(); ++row)
            one_row<kType, kOutputs>(weights, row_bytes, rows.floats(row), matrix.columns, out + row * stride + output);
    }

    template <ggml_type kType, int kOutputs>
    static void one_row(const std::byte* weights, std::size_t row_bytes, const float* row, std::size_t columns,
                        float* out) {
        constexpr std::size_t kBytes = bytes_of(kType);
        typename Eight::Vector lanes[kOutputs];
        for (auto& lane : lanes)
            lane = Eight::zero();
        const std::size_t whole = columns & ~std::size_t{7};
        for (std::size_t column = 0; column < whole; column += 8) {
            const auto x = load_row(row + column);
            for (std::size_t i = 0; i < kOutputs; ++i) {
                const auto w = Eight::template load<kType>(weights + i * row_bytes + column * kBytes);
                lanes[i] = Eight::add_product(lanes[i], w, x);
            }
        }
        for (std::size_t i = 0; i < kOutputs; ++i) {
            const std::byte* rest = weights + i * row_bytes + whole * kBytes;
            if (whole != columns) lanes[i] = add_rest<kType>(lanes[i], rest, row + whole, columns - whole);
            out[i] = fold(lanes[i]);
        }
    }

    static typename Eight::Vector load_row(const float* row) {
        return Eight::template load<GGML_TYPE_F32>(reinterpret_cast<const std::byte*>(row));
    }

    // Fewer than eight columns, filled up with zeros: a lane is never −0, so adding +0 changes none.
    template <ggml_type kType>
    static typename Eight::Vector add_rest(typename Eight::Vector lanes, const std::byte* weights, const float* row,
                                           std::size_t columns) {
        std::byte w[32] = {};
        float x[8] = {};
        std::memcpy(w, weights, columns * bytes_of(kType));
        std::memcpy(x, row, columns * sizeof(float));
        return Eight::add_product(lanes, Eight::template load<kType>(w), load_row(x));
    }

    static float fold(typename Eight::Vector vector) {
        float l[8];
        Eight::store(l, vector);
        const float y = ((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7]));
        return y == y ? y : std::bit_cast<float>(kNanBits);
    }
};

}  // namespace kvasir::portable
