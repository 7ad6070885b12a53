// Activation rows as the kernels want them: integers without −128, the sums that minimums and offsets need.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

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

// Rows of one form as kernels read them, in memory that somebody else keeps.
class RowsView {
  public:
    RowsView() = default;
    // `blocks`: Wide, Narrow or float, as the form says; a row's one after the other, and rows likewise.
    RowsView(Form form, std::size_t columns, std::size_t count, const void* blocks)
        : form_(form), columns_(columns), count_(count), units_(columns / block_columns(form)), blocks_(blocks) {}

    Form form() const { return form_; }
    std::size_t columns() const { return columns_; }
    std::size_t count() const { return count_; }
    // Blocks in a row.
    std::size_t units() const { return units_; }

    // Of the form that the name says: a row's blocks, or its columns.
    const Wide* wide(std::size_t row) const { return static_cast<const Wide*>(blocks_) + row * units_; }
    const Narrow* narrow(std::size_t row) const { return static_cast<const Narrow*>(blocks_) + row * units_; }
    const float* floats(std::size_t row) const { return static_cast<const float*>(blocks_) + row * columns_; }

  private:
    Form form_ = Form::f32;
    std::size_t columns_ = 0;
    std::size_t count_ = 0;
    std::size_t units_ = 0;
    const void* blocks_ = nullptr;
};

// Rows of one form, made from their bytes or numbers once (kernels.h) and then multiplied by as many matrices, and on
// as many threads, as one likes.
class PreparedRows {
  public:
    PreparedRows() = default;
    // `rows` holds `count` rows of row_bytes(form, columns) bytes, one after the other. `columns` is a multiple of
    // block_columns(form).
    PreparedRows(Form form, std::size_t columns, std::size_t count, const std::byte* rows);

    // Room for `count` rows, whose contents are unspecified. Memory is kept from one size to the next; std::bad_alloc
    // where there is none.
    void resize(Form form, std::size_t columns, std::size_t count);

    Form form() const { return form_; }
    std::size_t count() const { return count_; }
    std::size_t units() const { return units_; }
    // The blocks of a row: Wide, Narrow or float.
    void* row(std::size_t row);

    // Rows [first, first + count), as long as this object keeps its size.
    RowsView view(std::size_t first, std::size_t count) const;
    operator RowsView() const { return view(0, count_); }

  private:
    Form form_ = Form::f32;
    std::size_t columns_ = 0;
    std::size_t count_ = 0;
    std::size_t units_ = 0;
    // One of them is used, as the form says.
    std::vector<Wide> wide_;
    std::vector<Narrow> narrow_;
    std::vector<float> floats_;
};

}  // namespace kvasir::portable
