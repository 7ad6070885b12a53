#include "expert/row_encoding.h"

#include <algorithm>

#include "portable/kernels.h"

namespace kvasir {

namespace {

portable::Form form_of(RowEncoding encoding) {
    return encoding == RowEncoding::q8x256 ? portable::Form::q8x256 : portable::Form::q8x32;
}

}  // namespace

void encode_rows(RowEncoding encoding, std::size_t columns, std::span<const float> rows, std::span<std::byte> out) {
    if (encoding == RowEncoding::f32) {
        std::ranges::copy(std::as_bytes(rows), out.begin());
        return;
    }
    const portable::Kernels kernels;
    const std::size_t bytes = row_bytes(encoding, columns);
    for (std::size_t row = 0; row < rows.size() / columns; ++row) {
        std::span<const float> from = rows.subspan(row * columns, columns);
        std::span<std::byte> to = out.subspan(row * bytes, bytes);
        if (encoding == RowEncoding::i16x256) {
            kernels.to_result(from, to);
        } else {
            kernels.quantise(form_of(encoding), from, to);
        }
    }
}

Status decode_results(RowEncoding encoding, std::size_t columns, ByteSpan rows, std::span<float> out) {
    if (encoding == RowEncoding::f32) {
        std::ranges::copy(rows, std::as_writable_bytes(out).begin());
        return {};
    }
    if (encoding != RowEncoding::i16x256) return fail(ErrorKind::internal, "results do not travel as activations");
    const portable::Kernels kernels;
    const std::size_t bytes = row_bytes(encoding, columns);
    for (std::size_t row = 0; row < out.size() / columns; ++row) {
        Status decoded = kernels.from_result(rows.subspan(row * bytes, bytes), out.subspan(row * columns, columns));
        if (!decoded) return fail(decoded.error().within(fmt::format("row {}", row)));
    }
    return {};
}

}  // namespace kvasir
