// portable/1, written as its page (docs/portable-arithmetic.md) writes it, section by section: plain loops over single
// numbers, slow. It defines nothing that the page doesn't; kernels.h is the fast way to the same bits.
//
// Thread-safe. Arguments must fit together: a row's span holds row_bytes() bytes of its form, and so on; matrices and
// columns have passed check().
#pragma once

#include <cstddef>
#include <span>

#include "portable/types.h"

namespace kvasir::portable::reference {

// Section 2. `row` has columns that are a multiple of block_columns(form); `out` has row_bytes(form, columns).
void quantise(Form form, std::span<const float> row, std::span<std::byte> out);

// Section 4: out[i] = row i of `matrix` times `row`, of the form of the matrix's type.
void multiply(const Matrix& matrix, std::span<const std::byte> row, std::span<float> out);

// Section 5.
double exponential(double t);
float silu(float x);
float gelu(float x);
// `gate` is empty where there is no gate.
void activate(const Activation& activation, std::span<const float> gate, std::span<const float> up,
              std::span<float> out);

// Section 6: values × scale + bias. `scale` may be null, `bias` empty.
void scale_and_bias(std::span<float> values, const float* scale, std::span<const float> bias);

// Section 7. `out` has result_bytes(row.size()).
void to_result(std::span<const float> row, std::span<std::byte> out);
// Refuses exponents and mantissas that to_result never writes, and any other number of bytes.
Status from_result(std::span<const std::byte> result, std::span<float> row);

}  // namespace kvasir::portable::reference
