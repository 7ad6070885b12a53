// The reference and the kernels of every instruction set behind one interface: whatever gives portable/1's bits.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "portable/kernels.h"

namespace kvasir::portable::test {

class Implementation {
  public:
    // The reference.
    Implementation() = default;
    // One of supported_isas().
    explicit Implementation(Isa isa) : kernels_(Kernels(isa)) {}

    std::string name() const;
    ByteVector quantise(Form form, std::span<const float> row) const;
    // Every row of `rows` (their bytes, `count` of them) times the matrix: out[row × matrix.rows + output].
    std::vector<float> multiply(const Matrix& matrix, ByteSpan rows, std::size_t count) const;
    // `gate` is empty where there is none.
    std::vector<float> activate(const Activation& activation, std::span<const float> gate,
                                std::span<const float> up) const;
    std::vector<float> scale_and_bias(std::vector<float> values, const float* scale, std::span<const float> bias) const;
    ByteVector to_result(std::span<const float> row) const;
    // None if the bytes are refused.
    std::optional<std::vector<float>> from_result(ByteSpan result, std::size_t columns) const;

  private:
    std::optional<Kernels> kernels_;
};

// The reference first, then all that this machine can run.
std::vector<Implementation> all_implementations();

}  // namespace kvasir::portable::test
