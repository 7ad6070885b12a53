#include "portable/elsewhere/implementation.h"

#include "portable/reference.h"

namespace kvasir::portable::test {

std::string Implementation::name() const {
    return kernels_ ? std::string(name_of(kernels_->isa())) : "reference";
}

ByteVector Implementation::quantise(Form form, std::span<const float> row) const {
    ByteVector out(row_bytes(form, row.size()));
    kernels_ ? kernels_->quantise(form, row, out) : reference::quantise(form, row, out);
    return out;
}

std::vector<float> Implementation::multiply(const Matrix& matrix, ByteSpan rows, std::size_t count) const {
    const Form form = traits(matrix.type).form;
    std::vector<float> out(count * matrix.rows);
    if (kernels_) {
        const PreparedRows prepared(form, matrix.columns, count, rows.data());
        kernels_->multiply(matrix, prepared, 0, matrix.rows, out.data(), matrix.rows);
        return out;
    }
    const std::size_t bytes = row_bytes(form, matrix.columns);
    for (std::size_t row = 0; row < count; ++row) {
        reference::multiply(matrix, rows.subspan(row * bytes, bytes),
                            std::span(out).subspan(row * matrix.rows, matrix.rows));
    }
    return out;
}

std::vector<float> Implementation::activate(const Activation& activation, std::span<const float> gate,
                                            std::span<const float> up) const {
    std::vector<float> out(up.size());
    kernels_ ? kernels_->activate(activation, gate, up, out) : reference::activate(activation, gate, up, out);
    return out;
}

std::vector<float> Implementation::scale_and_bias(std::vector<float> values, const float* scale,
                                                  std::span<const float> bias) const {
    kernels_ ? kernels_->scale_and_bias(values, scale, bias) : reference::scale_and_bias(values, scale, bias);
    return values;
}

ByteVector Implementation::to_result(std::span<const float> row) const {
    ByteVector out(result_bytes(row.size()));
    kernels_ ? kernels_->to_result(row, out) : reference::to_result(row, out);
    return out;
}

std::optional<std::vector<float>> Implementation::from_result(ByteSpan result, std::size_t columns) const {
    std::vector<float> row(columns);
    const Status status = kernels_ ? kernels_->from_result(result, row) : reference::from_result(result, row);
    if (!status) return std::nullopt;
    return row;
}

std::vector<Implementation> all_implementations() {
    std::vector<Implementation> all(1);
    for (Isa isa : supported_isas())
        all.emplace_back(isa);
    return all;
}

}  // namespace kvasir::portable::test
