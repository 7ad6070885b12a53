// Which operations the backend claims. llama.cpp asks twice: when it places weights (with a zero-size buffer of our
// type on the weight) and when it splits a graph among backends.
#pragma once

#include <ggml-backend.h>
#include <ggml.h>

namespace kvasir {

// True for MUL_MAT_ID with weights in a buffer of type `ours`, and for what llama.cpp puts between the first and the
// last of a layer's, so that the whole expert FFN is one split; false for everything else, the router's weights and the
// sum over experts among it.
bool is_expert_op(const ggml_tensor* op, ggml_backend_buffer_type_t ours);

// Whether llama.cpp asks where to put a weight: its buffer is of type `ours` and has no bytes.
bool asks_for_placement(const ggml_tensor* op, ggml_backend_buffer_type_t ours);

}  // namespace kvasir
