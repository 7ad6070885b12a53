// Products with weights of F32, F16 and BF16: the eight lanes of section 4 are the lanes of V::Eight. Four output rows
// at a time hide the additions' latency; three rows of activations share what is read of the weights.
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
    static void multiply(const Matrix& matrix, const RowsView& rows, std::size_t begin, std::size_t end, float* out,
                         std::size_t stride) {
        if constexpr (converts_once<kType>()) {
            if (rows.count() > 1) return multiply_converted<kType>(matrix, rows, begin, end, out, stride);
        }
        std::size_t output = begin;
        for (; output + kOutputs <= end; output += kOutputs)
            outputs<kType, kOutputs>(matrix, rows, output, end, out, stride);
        for (; output < end; ++output)
            outputs<kType, 1>(matrix, rows, output, end, out, stride);
    }

  private:
    static constexpr std::size_t kOutputs = 4;
    static constexpr std::size_t kRows = 3;       // of activations: what weights are converted for once
    static constexpr std::size_t kAhead = 12288;  // bytes; measured
    static constexpr std::size_t bytes_of(ggml_type type) { return type == GGML_TYPE_F32 ? 4 : 2; }

    template <ggml_type kType>
    static constexpr bool converts_once() {
        if constexpr (requires { Eight::template kConvertsOnce<kType>; }) return Eight::template kConvertsOnce<kType>;
        return false;
    }

    // Four output rows become f32 once for all rows of activations.
    template <ggml_type kType>
    static void multiply_converted(const Matrix& matrix, const RowsView& rows, std::size_t begin, std::size_t end,
                                   float* out, std::size_t stride) {
        const std::unique_ptr<float[]> converted(new float[kOutputs * matrix.columns]);
        const auto* bytes = reinterpret_cast<const std::byte*>(converted.get());
        for (std::size_t output = begin; output < end; output += kOutputs) {
            const std::size_t count = end - output < kOutputs ? end - output : kOutputs;
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

    // Rows of weights, and what is to be read soon after them.
    struct Weights {
        const std::byte* data;
        std::size_t row_bytes;
        const std::byte* next;
        const std::byte* next_end;

        // Asks for the next `lines` cache lines in the order of their addresses, which the processor, seeing several
        // rows read in turn, does not do by itself.
        void fetch(std::size_t lines) {
            for (std::size_t i = 0; i < lines && next < next_end; ++i, next += 64)
                __builtin_prefetch(next, 0, 2);
        }
    };

    template <ggml_type kType, std::size_t kCount>
    static void outputs(const Matrix& matrix, const RowsView& rows, std::size_t output, std::size_t end, float* out,
                        std::size_t stride) {
        const std::size_t row_bytes = matrix.columns * bytes_of(kType);
        const std::byte* data = matrix.data + output * row_bytes;
        const std::size_t bytes = kCount * row_bytes;
        const std::byte* next = data + (bytes < kAhead ? kAhead : bytes);
        const std::byte* last = matrix.data + end * row_bytes;
        Weights weights{data, row_bytes, next, last - next < static_cast<std::ptrdiff_t>(bytes) ? last : next + bytes};
        const RowsAt at{rows.floats(0), matrix.columns, out + output, stride};
        std::size_t row = 0;
        for (; row + kRows <= rows.count(); row += kRows)
            some_rows<kType, kCount, kRows>(weights, at.from(row));
        for (; row < rows.count(); ++row)
            some_rows<kType, kCount, 1>(weights, at.from(row));
    }

    struct RowsAt {
        const float* values;
        std::size_t columns;
        float* out;
        std::size_t stride;

        RowsAt from(std::size_t row) const { return {values + row * columns, columns, out + row * stride, stride}; }
    };

    template <ggml_type kType, std::size_t kCount, std::size_t kRowCount>
    static void some_rows(Weights& weights, const RowsAt& rows) {
        constexpr std::size_t kBytes = bytes_of(kType);
        constexpr std::size_t kStep = 64 / kBytes;  // columns in a cache line
        const std::size_t columns = rows.columns;
        Lanes<kCount, kRowCount> lanes;
        const std::size_t lines = columns / kStep * kStep;
        for (std::size_t column = 0; column < lines; column += kStep) {
            for (std::size_t i = 0; i < kStep; i += 8)
                lanes.template add<kType>(weights, rows, column + i);
            weights.fetch(kCount);
        }
        const std::size_t whole = columns & ~std::size_t{7};
        for (std::size_t column = lines; column < whole; column += 8)
            lanes.template add<kType>(weights, rows, column);
        for (std::size_t row = 0; row < kRowCount; ++row) {
            const float* values = rows.values + row * columns + whole;
            for (std::size_t i = 0; i < kCount; ++i) {
                const std::byte* rest = weights.data + i * weights.row_bytes + whole * kBytes;
                typename Eight::Vector& lane = lanes.vectors[row][i];
                if (whole != columns) lane = add_rest<kType>(lane, rest, values, columns - whole);
                rows.out[row * rows.stride + i] = fold(lane);
            }
        }
    }

    template <std::size_t kCount, std::size_t kRowCount>
    struct Lanes {
        typename Eight::Vector vectors[kRowCount][kCount];

        Lanes() {
            for (auto& row : vectors) {
                for (auto& vector : row)
                    vector = Eight::zero();
            }
        }
        template <ggml_type kType>
        void add(const Weights& weights, const RowsAt& rows, std::size_t column) {
            typename Eight::Vector x[kRowCount];
            for (std::size_t row = 0; row < kRowCount; ++row)
                x[row] = load_row(rows.values + row * rows.columns + column);
            for (std::size_t i = 0; i < kCount; ++i) {
                const std::byte* from = weights.data + i * weights.row_bytes + column * bytes_of(kType);
                const typename Eight::Vector w = Eight::template load<kType>(from);
                for (std::size_t row = 0; row < kRowCount; ++row)
                    vectors[row][i] = Eight::add_product(vectors[row][i], w, x[row]);
            }
        }
    };

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
