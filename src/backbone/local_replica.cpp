#include "backbone/local_replica.h"

#include <ggml.h>

#include <algorithm>
#include <vector>

namespace kvasir {
namespace {

bool is_matrix(Role role) {
    return role == Role::gate || role == Role::up || role == Role::down || role == Role::gate_up;
}

}  // namespace

LayerWeights view_weights(const ExpertGroup& group) {
    LayerWeights weights;
    weights.hidden = group.hidden();
    weights.ff = static_cast<std::uint64_t>(group[Role::down]->ne[0]);
    weights.experts = group.experts();
    for (std::size_t i = 0; i < kRoleCount; ++i) {
        const ggml_tensor* tensor = group.weights[i];
        if (tensor == nullptr) continue;
        WeightView view{.type = static_cast<std::uint32_t>(tensor->type),
                        .data = static_cast<const std::byte*>(tensor->data)};
        std::copy_n(tensor->ne, view.shape.size(), view.shape.begin());
        weights.tensors[i] = view;
    }
    return weights;
}

void prefetch_experts(const LayerWeights& weights, std::span<const std::uint32_t> experts) {
    for (std::size_t i = 0; i < kRoleCount; ++i) {
        const std::optional<WeightView>& view = weights.tensors[i];
        if (!view || !is_matrix(static_cast<Role>(i))) continue;
        auto type = static_cast<ggml_type>(view->type);
        std::size_t slab_bytes = ggml_row_size(type, static_cast<std::int64_t>(view->shape[0])) * view->shape[1];
        SlabPrefetcher::prefetch(view->data, slab_bytes, experts);
    }
}

Status LocalReplica::compute(const ExpertCall& call, std::span<const Pair> pairs, std::span<float> out) {
    pairs_ += pairs.size();
    if (prefetcher_.wanted()) {
        std::vector<std::uint32_t> experts;
        experts.reserve(pairs.size());
        for (const Pair& pair : pairs) {
            if (pair.expert < weights_.experts) experts.push_back(pair.expert);
        }
        std::sort(experts.begin(), experts.end());
        experts.erase(std::unique(experts.begin(), experts.end()), experts.end());
        prefetch_experts(weights_, experts);
    }
    if (encoding_ == RowEncoding::f32) {
        return engine_.compute(weights_, call.recipe, call.rows, pairs, std::as_writable_bytes(out));
    }
    // What a worker would send, and what would be read of it.
    ByteVector results(pairs.size() * row_bytes(encoding_, call.hidden));
    if (Status computed = engine_.compute(weights_, call.recipe, call.rows, pairs, results); !computed) return computed;
    return decode_results(encoding_, call.hidden, results, out);
}

}  // namespace kvasir
