#include "portable/prepared.h"

#include "portable/rows.h"

namespace kvasir::portable {
namespace {

struct Reader {};

template <class Block>
void grow(std::vector<Block>& blocks, std::size_t count) {
    if (blocks.size() < count) blocks.resize(count);
}

}  // namespace

PreparedRows::PreparedRows(Form form, std::size_t columns, std::size_t count, const std::byte* rows) {
    resize(form, columns, count);
    for (std::size_t i = 0; i < count; ++i)
        Rows<Reader>::read(rows + i * row_bytes(form, columns), form, units_, row(i));
}

void PreparedRows::resize(Form form, std::size_t columns, std::size_t count) {
    form_ = form;
    columns_ = columns;
    count_ = count;
    units_ = columns / block_columns(form);
    switch (form) {
        case Form::q8x256:
            return grow(wide_, count * units_);
        case Form::q8x32:
            return grow(narrow_, count * units_);
        case Form::f32:
            return grow(floats_, count * units_);
    }
}

void* PreparedRows::row(std::size_t row) {
    switch (form_) {
        case Form::q8x256:
            return wide_.data() + row * units_;
        case Form::q8x32:
            return narrow_.data() + row * units_;
        case Form::f32:
            break;
    }
    return floats_.data() + row * units_;
}

RowsView PreparedRows::view(std::size_t first, std::size_t count) const {
    const void* blocks = floats_.data() + first * units_;
    if (form_ == Form::q8x256) blocks = wide_.data() + first * units_;
    if (form_ == Form::q8x32) blocks = narrow_.data() + first * units_;
    return {form_, columns_, count, blocks};
}

}  // namespace kvasir::portable
