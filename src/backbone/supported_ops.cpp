#include "backbone/supported_ops.h"

#include <algorithm>
#include <iterator>

#include "backbone/expert_group.h"

namespace kvasir {
namespace {

// A group is at most about ten operations deep.
constexpr int kDeepest = 16;

bool is_ours(const ggml_tensor* tensor, ggml_backend_buffer_type_t ours) {
    if (tensor == nullptr) return false;
    const ggml_tensor* root = tensor->view_src != nullptr ? tensor->view_src : tensor;
    return root->buffer != nullptr && ggml_backend_buffer_get_type(root->buffer) == ours;
}

// Computed from an expert's output by steps that we claim.
bool is_expert_value(const ggml_tensor* tensor, ggml_backend_buffer_type_t ours, int depth) {
    if (tensor == nullptr || depth > kDeepest) return false;
    auto follows = [&](int source) { return is_expert_value(tensor->src[source], ours, depth + 1); };
    switch (tensor->op) {
        case GGML_OP_MUL_MAT_ID:
            return is_ours(tensor->src[0], ours);
        case GGML_OP_ADD_ID:
            return is_ours(tensor->src[1], ours) && follows(0);
        case GGML_OP_MUL:
            return follows(0) &&
                   (follows(1) || (is_expert_scale(tensor->src[1]) && is_ours(tensor->src[1]->src[0]->src[0], ours)));
        case GGML_OP_GLU:
            return follows(0) && (tensor->src[1] == nullptr || follows(1));
        case GGML_OP_VIEW:
        case GGML_OP_UNARY:
        case GGML_OP_SQR:
        case GGML_OP_CLAMP:
        case GGML_OP_SCALE:
            return follows(0);
        default:
            return false;
    }
}

}  // namespace

bool is_expert_op(const ggml_tensor* op, ggml_backend_buffer_type_t ours) {
    switch (op->op) {
        case GGML_OP_NONE:
        case GGML_OP_RESHAPE:
        case GGML_OP_VIEW:
            return is_ours(op, ours);
        // Its bias is asked about with nothing computed yet.
        case GGML_OP_ADD_ID:
            return is_ours(op->src[1], ours);
        case GGML_OP_REPEAT:
            return is_ours(op->src[0], ours);
        case GGML_OP_GET_ROWS:
            return is_expert_scale(op) && is_ours(op->src[0]->src[0], ours);
        default:
            return is_expert_value(op, ours, 0);
    }
}

bool asks_for_placement(const ggml_tensor* op, ggml_backend_buffer_type_t ours) {
    return std::any_of(std::begin(op->src), std::end(op->src), [&](const ggml_tensor* source) {
        return is_ours(source, ours) && source->buffer != nullptr && ggml_backend_buffer_get_size(source->buffer) == 0;
    });
}

}  // namespace kvasir
