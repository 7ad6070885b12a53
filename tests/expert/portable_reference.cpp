#include "expert/portable_reference.h"

#include <map>
#include <utility>

#include "portable/reference.h"

namespace kvasir::test {

namespace {

namespace reference = portable::reference;

// A pair's expert, and where its weights are: `first` of `outputs` rows of the tensor's own.
class Expert {
  public:
    Expert(const LayerWeights& weights, const Recipe& recipe, std::uint32_t number)
        : weights_(weights), recipe_(recipe), number_(number) {}
    ByteVector compute(std::span<const float> row) const;

  private:
    // Rows [first, first + outputs) of the expert's matrix times `row`, scaled, biased.
    std::vector<float> project(Role matrix, Role scale, Role bias, std::uint64_t first, std::uint64_t outputs,
                               std::span<const float> row) const;

    const LayerWeights& weights_;
    const Recipe& recipe_;
    const std::uint32_t number_;
};

std::vector<float> Expert::project(Role role, Role scale_role, Role bias_role, std::uint64_t first,
                                   std::uint64_t outputs, std::span<const float> row) const {
    const WeightView& view = *weights_[role];
    const auto type = static_cast<ggml_type>(view.type);
    const std::uint64_t rows = view.shape[1];
    const std::size_t row_size = portable::weight_row_bytes(type, row.size());
    const portable::Form form = portable::traits(type).form;
    ByteVector quantised(portable::row_bytes(form, row.size()));
    reference::quantise(form, row, quantised);
    std::vector<float> out(outputs);
    reference::multiply({type, outputs, row.size(), view.data + (number_ * rows + first) * row_size}, quantised, out);
    const auto floats = [&](Role wanted) { return reinterpret_cast<const float*>(weights_[wanted]->data); };
    const float* scale = weights_[scale_role] ? floats(scale_role) + number_ : nullptr;
    std::span<const float> bias;
    if (weights_[bias_role]) bias = {floats(bias_role) + number_ * rows + first, outputs};
    reference::scale_and_bias(out, scale, bias);
    return out;
}

ByteVector Expert::compute(std::span<const float> row) const {
    const std::uint64_t ff = weights_.ff;
    std::vector<float> gate;
    std::vector<float> up;
    if (recipe_.fused_gate_up) {
        gate = project(Role::gate_up, Role::up_scale, Role::gate_up_bias, 0, ff, row);
        up = project(Role::gate_up, Role::up_scale, Role::gate_up_bias, ff, ff, row);
    } else {
        if (recipe_.gated) gate = project(Role::gate, Role::gate_scale, Role::gate_bias, 0, ff, row);
        up = project(Role::up, Role::up_scale, Role::up_bias, 0, ff, row);
    }
    std::vector<float> inner(ff);
    reference::activate({static_cast<portable::Function>(recipe_.activation), recipe_.alpha, recipe_.limit}, gate, up,
                        inner);
    const std::vector<float> out = project(Role::down, Role::down_scale, Role::down_bias, 0, weights_.hidden, inner);
    ByteVector result(portable::result_bytes(out.size()));
    reference::to_result(out, result);
    return result;
}

}  // namespace

ByteVector encoded_rows(Arithmetic arithmetic, const LayerWeights& weights, std::span<const float> rows) {
    const RowEncoding encoding = input_encoding(arithmetic, weights);
    ByteVector encoded(rows.size() / weights.hidden * row_bytes(encoding, weights.hidden));
    encode_rows(encoding, weights.hidden, rows, encoded);
    return encoded;
}

ByteVector portable_output(const LayerWeights& weights, const Recipe& recipe, std::span<const float> rows,
                           std::span<const Pair> pairs) {
    std::map<std::pair<std::uint32_t, std::uint32_t>, ByteVector> known;  // the reference is slow
    ByteVector out;
    for (const Pair& pair : pairs) {
        ByteVector& result = known[{pair.row, pair.expert}];
        if (result.empty()) {
            result =
                Expert(weights, recipe, pair.expert).compute(rows.subspan(pair.row * weights.hidden, weights.hidden));
        }
        out.insert(out.end(), result.begin(), result.end());
    }
    return out;
}

}  // namespace kvasir::test
