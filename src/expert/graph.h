// The ggml graph of one recipe over one batch of pairs.
#pragma once

#include <ggml.h>

#include <cstdint>
#include <memory>
#include <span>

#include "base/bytes.h"
#include "expert/layer_weights.h"

namespace kvasir {

// A batch as ggml's MUL_MAT_ID sees it: `tokens` rows, each through `slots` experts.
struct Batch {
    std::int64_t slots = 0;
    std::int64_t tokens = 0;
    const float* rows = nullptr;        // [tokens][hidden]
    const std::int32_t* ids = nullptr;  // [tokens][slots], checked
    float* out = nullptr;               // [tokens][slots][hidden]

    std::int64_t pairs() const { return slots * tokens; }
};

// Builds the graph, op by op as llama.cpp's build_moe_ffn does, into a context that it resets each time. Not
// thread-safe; the graph lives until the next call.
class GraphBuilder {
  public:
    GraphBuilder();

    // `recipe` and `weights` must have passed check_recipe. Intermediate results live in `scratch`, which grows.
    ggml_cgraph* build(const LayerWeights& weights, const Recipe& recipe, const Batch& batch, ByteVector& scratch);

  private:
    ggml_tensor* matrix(const WeightView& view);
    ggml_tensor* floats(const void* data, std::int64_t ne0, std::int64_t ne1, std::int64_t ne2);
    ggml_tensor* multiply(const LayerWeights& weights, Role role, ggml_tensor* input);
    ggml_tensor* scaled(const LayerWeights& weights, Role role, ggml_tensor* input);
    ggml_tensor* biased(const LayerWeights& weights, Role role, ggml_tensor* input);
    ggml_tensor* activated(const Recipe& recipe, ggml_tensor* gate, ggml_tensor* up);
    void place(ggml_cgraph* graph, ByteVector& scratch);

    struct Free {
        void operator()(ggml_context* context) const { ggml_free(context); }
    };
    ByteVector memory_;  // of the context: tensor headers and the graph, no data
    std::unique_ptr<ggml_context, Free> context_;
    const Batch* batch_ = nullptr;  // only within build()
    ggml_tensor* ids_ = nullptr;
    std::vector<float> scales_[3];  // gathered per pair, by role
};

}  // namespace kvasir
