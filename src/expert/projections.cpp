#include "expert/projections.h"

namespace kvasir {

namespace {

const float* floats_of(const LayerWeights& weights, Role role) {
    return weights[role] ? reinterpret_cast<const float*>(weights[role]->data) : nullptr;
}

Projection project(const LayerWeights& weights, Role matrix, Role scale, Role bias) {
    const WeightView& view = *weights[matrix];
    return {static_cast<ggml_type>(view.type), view.shape[1],           view.shape[0], 0, view.shape[1], view.data,
            floats_of(weights, scale),         floats_of(weights, bias)};
}

}  // namespace

Projections projections_of(const LayerWeights& weights) {
    Projections made;
    made.down = project(weights, Role::down, Role::down_scale, Role::down_bias);
    if (!weights[Role::gate_up]) {
        made.up = project(weights, Role::up, Role::up_scale, Role::up_bias);
        if (weights[Role::gate]) made.gate = project(weights, Role::gate, Role::gate_scale, Role::gate_bias);
        return made;
    }
    made.up = project(weights, Role::gate_up, Role::up_scale, Role::gate_up_bias);
    made.up.outputs /= 2;
    made.gate = made.up;
    made.up.skip = made.up.outputs;
    return made;
}

}  // namespace kvasir
