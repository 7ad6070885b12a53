// portable/1 fast: the bits of the reference (reference.h) from vector instructions, chosen at run time.
//
// No threads inside: several may call with one Kernels and the same rows at a time, each for its own output rows.
// Any partition of rows and outputs gives the same bits. The caller's rounding and flush-to-zero modes do not matter.
// Arguments must fit together as in reference.h.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "portable/prepared.h"
#include "portable/types.h"

namespace kvasir::portable {

enum class Isa {
    plain,      // C++ alone
    avx2,       // AVX2 and F16C
    avx512,     // AVX-512 F, BW, VL, DQ and VNNI
    neon,       // every AArch64
    neon_dot,   // NEON with dot products
    neon_i8mm,  // NEON with dot products and products of 8-bit matrices
    wasm,       // WebAssembly's 128-bit vectors, where the library is compiled with them
};
std::string_view name_of(Isa isa);

// What this machine can run, the fastest last.
std::vector<Isa> supported_isas();

struct KernelTable;

// The kernels of one instruction set. Copies are cheap; constant.
class Kernels {
  public:
    // The fastest that this machine has.
    Kernels();
    // `isa` must be one of supported_isas().
    explicit Kernels(Isa isa);

    Isa isa() const;

    // Section 2: `out` has row_bytes(form, row.size()).
    void quantise(Form form, std::span<const float> row, std::span<std::byte> out) const;

    // Row `row` of `rows` from its bytes (section 2), or from the numbers that such bytes would be quantised from.
    // Several threads may do so with one PreparedRows at a time, each for its own row.
    void read(std::span<const std::byte> bytes, PreparedRows& rows, std::size_t row) const;
    void prepare(std::span<const float> values, PreparedRows& rows, std::size_t row) const;

    // Section 4 for output rows [begin, end) of `matrix` and all of `rows`: out[r·stride + i] is output i of row r.
    // Fastest where end − begin is a multiple of 16.
    void multiply(const Matrix& matrix, const RowsView& rows, std::size_t begin, std::size_t end, float* out,
                  std::size_t stride) const;

    // Sections 5, 6 and 7, as in reference.h. `out` may be `gate` or `up`.
    void activate(const Activation& activation, std::span<const float> gate, std::span<const float> up,
                  std::span<float> out) const;
    void scale_and_bias(std::span<float> values, const float* scale, std::span<const float> bias) const;
    void to_result(std::span<const float> row, std::span<std::byte> out) const;
    Status from_result(std::span<const std::byte> result, std::span<float> row) const;

  private:
    const KernelTable* table_;
};

}  // namespace kvasir::portable
