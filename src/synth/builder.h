// What the architectures are written with: metadata under the architecture's prefix, and tensors whose weights keep
// activations near one whatever the geometry.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "synth/plan.h"

namespace kvasir::synth {

struct WeightTypes {
    ggml_type expert = GGML_TYPE_F32;
    ggml_type down = GGML_TYPE_F32;
    ggml_type dense = GGML_TYPE_F32;
    ggml_type embedding = GGML_TYPE_F32;
    ggml_type output = GGML_TYPE_F32;
};

class Builder {
  public:
    Builder(const SynthSpec& spec, const WeightTypes& types, ModelPlan& plan)
        : spec_(spec), types_(types), plan_(plan) {}

    const SynthSpec& spec() const { return spec_; }
    std::uint32_t block_count() const { return spec_.layers + spec_.mtp_layers; }
    std::uint64_t shared_ff() const { return spec_.shared_ff ? spec_.shared_ff : spec_.ff; }
    std::uint64_t dense_ff() const { return spec_.dense_ff ? spec_.dense_ff : spec_.ff; }

    // Metadata, keys without the architecture's prefix. An existing key is replaced.
    void set(std::string_view key, std::uint32_t value);
    void set(std::string_view key, float value);
    void set(std::string_view key, bool value);
    void set(std::string_view key, const std::vector<std::uint32_t>& values);
    void set(std::string_view key, const std::vector<float>& values);

    // Tensors of one block are named "blk.N.<name>".
    static std::string block(std::uint32_t layer, std::string_view name);

    // A dense matrix [in, out] or a stack of them; its product with rows of variance one has deviation `gain`.
    void matrix(const std::string& name, std::initializer_list<std::uint64_t> shape, float gain = 1.0F);
    // The same in f32, never quantised: routers, convolutions.
    void matrix_f32(const std::string& name, std::initializer_list<std::uint64_t> shape, float gain = 1.0F);
    // An f32 vector (or small tensor).
    void vector(const std::string& name, std::initializer_list<std::uint64_t> shape, Fill fill);
    void norm(const std::string& name, std::uint64_t length) { vector(name, {length}, {1.0F, 0.1F}); }
    void bias(const std::string& name, std::initializer_list<std::uint64_t> shape) {
        vector(name, shape, {0.0F, 0.2F});
    }

    // Parts that most architectures share, each with the usual names.
    void embeddings();                                     // token_embd, output_norm, output
    void attention(std::uint32_t layer, bool qk_norm);     // attn_q/k/v/output, norms of one head
    void router(std::uint32_t layer);                      // ffn_gate_inp
    void experts(std::uint32_t layer, bool gated = true);  // ffn_{gate,up,down}_exps, fused or with scales as asked
    void expert_biases(std::uint32_t layer);
    void selection_bias(std::uint32_t layer);  // exp_probs_b, added to the router's scores for the choice alone
    void shared_expert(std::uint32_t layer, std::uint64_t ff, bool gated = true);
    void dense_ffn(std::uint32_t layer, std::uint64_t ff, bool gated = true);

    void mtp_head(std::uint32_t layer);  // nextn.*: what joins an MTP block to the model

  private:
    ggml_type down_type(std::uint32_t layer) const;
    void add(const std::string& name, ggml_type type, std::initializer_list<std::uint64_t> shape, Fill fill);
    std::string key(std::string_view suffix) const;

    const SynthSpec& spec_;
    WeightTypes types_;
    ModelPlan& plan_;
};

// What an architecture can do beyond the plainest form; asking for more is refused by name.
struct Features {
    bool dense = false;  // a model without experts
    bool dense_layers = false;
    bool moe_every = false;
    bool fused_gate_up = false;
    bool expert_scales = false;
    bool mtp = false;
    bool clamp = false;
    bool groups = false;
    bool square_attention = false;  // heads × head size must be the hidden size
    bool equal_heads = false;       // as many key/value heads as heads
    bool delta_net = false;         // value heads must be a multiple of key heads
    std::uint32_t fewest_layers = 1;
};

struct Architecture {
    const char* name;
    Features features;
    void (*build)(Builder& builder);
};

// One table per source file.
std::vector<Architecture> plain_architectures();   // arch_plain.cpp: a softmax router and experts, no more
std::vector<Architecture> shared_architectures();  // arch_shared.cpp: shared experts, dense layers, other routers
std::vector<Architecture> hybrid_architectures();  // arch_hybrid.cpp: recurrent layers between those with attention

}  // namespace kvasir::synth
