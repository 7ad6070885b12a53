// Activation rows as the kernels want them: integers without −128, the sums that minimums and offsets need.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "portable/types.h"

namespace kvasir::portable {

// A block of 256. Sums are of 16 (32) columns each, in the order 0 2 1 3 4 6 5 7 8 10 9 11 12 14 13 15 (the first
// eight): the pairs of bytes that two masks cut out of a 32-bit word of scales.
struct alignas(64) Wide {
    std::int8_t q[256];
    std::int16_t sums16[16];
    std::int16_t sums32[8];
    float scale;
};
// A block of 32.
struct alignas(16) Narrow {
    std::int8_t q[32];
    std::int16_t low_sum;   // of the first 16 columns
    std::int16_t high_sum;  // of the others
    float scale;
};

// Rows of one form, read from their bytes (section 2) once and then multiplied by as many matrices, and on as many
// threads, as one likes. Constant after construction.
class PreparedRows {
  public:
    // `rows` holds `count` rows of row_bytes(form, columns) bytes, one after the other. `columns` is a multiple of
    // block_columns(form).
    PreparedRows(Form form, std::size_t columns, std::size_t count, const std::byte* rows);

    Form form() const { return form_; }
    std::size_t columns() const { return columns_; }
    std::size_t count() const { return count_; }
    // Blocks in a row.
    std::size_t units() const { return units_; }

    // Of the form that the name says: a row's blocks, or its columns.
    const Wide* wide(std::size_t row) const { return wide_.get() + row * units_; }
    const Narrow* narrow(std::size_t row) const { return narrow_.get() + row * units_; }
    const float* floats(std::size_t row) const { return floats_.get() + row * columns_; }

  private:
    Form form_;
    std::size_t columns_;
    std::size_t count_;
    std::size_t units_;
    std::unique_ptr<Wide[]> wide_;
    std::unique_ptr<Narrow[]> narrow_;
    std::unique_ptr<float[]> floats_;
};

}  // namespace kvasir::portable
