// Kernels in C++ alone, for machines without vectors that we know and for types and ranges without kernels of their
// own: a unit is decoded once for all rows.
#include "portable/kernel_table.h"
#include "portable/numbers.h"
#include "portable/rows.h"
#include "portable/units.h"

namespace kvasir::portable {
namespace {

struct Plain {};

// Rows whose accumulators are kept while an output row's units are decoded.
constexpr std::size_t kRowsAtOnce = 64;

float fold(const float* l) {
    return canonical(((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7])));
}

template <std::size_t kColumns>
std::int32_t dot(const std::int16_t* weights, const std::int8_t* q) {
    std::int32_t sum = 0;
    for (std::size_t j = 0; j < kColumns; ++j)
        sum += static_cast<std::int32_t>(weights[j]) * static_cast<std::int16_t>(q[j]);
    return sum;
}

const Wide* blocks(const RowsView& rows, std::size_t row, const Wide*) {
    return rows.wide(row);
}
const Narrow* blocks(const RowsView& rows, std::size_t row, const Narrow*) {
    return rows.narrow(row);
}

template <class Block>
void multiply_integers(const Matrix& matrix, const RowsView& rows, std::size_t begin, std::size_t end, float* out,
                       std::size_t stride) {
    constexpr std::size_t kColumns = sizeof(Block::q);
    const bool minimums = traits(matrix.type).minimums;
    const std::size_t row_bytes = weight_row_bytes(matrix.type, matrix.columns);
    for (std::size_t output = begin; output < end; ++output) {
        for (std::size_t first = 0; first < rows.count(); first += kRowsAtOnce) {
            const std::size_t last = first + kRowsAtOnce < rows.count() ? first + kRowsAtOnce : rows.count();
            float lanes[kRowsAtOnce][8] = {};
            Unit unit;
            for (std::size_t u = 0; u < rows.units(); ++u) {
                decode_unit(matrix.type, matrix.data + output * row_bytes, u, unit);
                for (std::size_t row = first; row < last; ++row) {
                    const Block& block = blocks(rows, row, static_cast<const Block*>(nullptr))[u];
                    const std::int32_t sum = dot<kColumns>(unit.weight.data(), block.q);
                    float term = static_cast<float>(sum) * (unit.scale * block.scale);
                    if (minimums) {
                        const std::int32_t minimum = dot<kColumns>(unit.minimum.data(), block.q);
                        term = term - static_cast<float>(minimum) * (unit.minimum_scale * block.scale);
                    }
                    float& lane = lanes[row - first][u % 8];
                    lane = lane + term;
                }
            }
            for (std::size_t row = first; row < last; ++row)
                out[row * stride + output] = fold(lanes[row - first]);
        }
    }
}

void multiply_floats(const Matrix& matrix, const RowsView& rows, std::size_t begin, std::size_t end, float* out,
                     std::size_t stride) {
    const std::size_t row_bytes = weight_row_bytes(matrix.type, matrix.columns);
    for (std::size_t output = begin; output < end; ++output) {
        const std::byte* weights = matrix.data + output * row_bytes;
        for (std::size_t row = 0; row < rows.count(); ++row) {
            const float* x = rows.floats(row);
            float lanes[8] = {};
            for (std::size_t j = 0; j < matrix.columns; ++j)
                lanes[j % 8] = lanes[j % 8] + decode_column(matrix.type, weights, j) * x[j];
            out[row * stride + output] = fold(lanes);
        }
    }
}

Multiply multiply_of(ggml_type type) {
    switch (traits(type).form) {
        case Form::q8x256:
            return multiply_integers<Wide>;
        case Form::q8x32:
            return multiply_integers<Narrow>;
        case Form::f32:
            break;
    }
    return multiply_floats;
}

}  // namespace

const KernelTable& plain_table() {
    using R = Rows<Plain>;
    static const KernelTable table = {Isa::plain, 1,           multiply_of,       R::quantise,  R::read,
                                      R::prepare, R::activate, R::scale_and_bias, R::to_result, R::from_result};
    return table;
}

}  // namespace kvasir::portable
