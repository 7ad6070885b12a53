#include "synth/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <numeric>

#include "synth/builder.h"
#include "synth/tokenizer.h"

namespace kvasir::synth {
namespace {

// llama.cpp's own limits (LLAMA_MAX_LAYERS, LLAMA_MAX_EXPERTS) and bounds that keep every product below 2^63.
constexpr std::uint32_t kMaxLayers = 512;
constexpr std::uint32_t kMaxExperts = 1024;
constexpr std::uint64_t kMaxWidth = 1 << 20;
constexpr std::uint32_t kMaxVocabulary = 1 << 20;
constexpr std::uint32_t kMaxHeads = 1024;

std::vector<Architecture> architectures() {
    std::vector<Architecture> all;
    for (auto table : {plain_architectures, shared_architectures, hybrid_architectures}) {
        for (const Architecture& architecture : table())
            all.push_back(architecture);
    }
    return all;
}

struct Bound {
    const char* flag;
    std::uint64_t value;
    std::uint64_t least;
    std::uint64_t most;
};

Status check_bounds(const SynthSpec& s) {
    const Bound bounds[] = {
        {"--layers", s.layers, 1, kMaxLayers - 1},
        {"--mtp-layers", s.mtp_layers, 0, 1},
        {"--dense-layers", s.dense_layers, 0, s.layers - 1},
        {"--moe-every", s.moe_every, 1, s.layers},
        {"--experts", s.experts, 0, kMaxExperts},
        {"--used", s.used, 1, s.experts > 0 ? s.experts : kMaxExperts},
        {"--groups", s.groups, 0, kMaxExperts},
        {"--hidden", s.hidden, 32, kMaxWidth},
        {"--ff", s.ff, 32, kMaxWidth},
        {"--shared-ff", s.shared_ff, 0, kMaxWidth},
        {"--dense-ff", s.dense_ff, 0, kMaxWidth},
        {"--heads", s.heads, 1, kMaxHeads},
        {"--kv-heads", s.kv_heads, 1, s.heads},
        {"--head-dim", s.head_dim, 8, 1024},
        {"--linear-key-heads", s.linear_key_heads, 1, kMaxHeads},
        {"--linear-value-heads", s.linear_value_heads, 1, kMaxHeads},
        {"--state-size", s.state_size, 4, 1024},
        {"--vocab", s.vocab, kSmallestVocabulary, kMaxVocabulary},
        {"--context", s.context, 16, 1 << 24},
        {"--down-every", s.down_every, 1, kMaxLayers},
    };
    for (const Bound& bound : bounds) {
        if (bound.value < bound.least || bound.value > bound.most) {
            return fail(ErrorKind::usage, "{} is {}; it must be from {} to {}", bound.flag, bound.value, bound.least,
                        bound.most);
        }
    }
    if (s.experts == 1) return fail(ErrorKind::usage, "--experts is 1; there must be two at least, or none");
    if (s.head_dim % 2 != 0) return fail(ErrorKind::usage, "--head-dim is {}; it must be even", s.head_dim);
    if (s.hidden % 2 != 0) return fail(ErrorKind::usage, "--hidden is {}; it must be even", s.hidden);
    if (s.heads % s.kv_heads != 0) {
        return fail(ErrorKind::usage, "--heads ({}) must be a multiple of --kv-heads ({})", s.heads, s.kv_heads);
    }
    if (s.groups > 1 && (s.experts % s.groups != 0 || s.groups_used < 1 || s.groups_used >= s.groups ||
                         s.experts / s.groups < 2 || s.used > s.experts / s.groups * s.groups_used)) {
        return fail(ErrorKind::usage,
                    "{} experts in {} groups of which {} are used: groups must be equal, of at least two experts, "
                    "fewer used than there are, and hold the {} experts of a token",
                    s.experts, s.groups, s.groups_used, s.used);
    }
    return {};
}

Status check_features(const SynthSpec& s, const Architecture& architecture) {
    const Features& has = architecture.features;
    const std::pair<bool, const char*> wants[] = {
        {s.fused_gate_up && !has.fused_gate_up, "fused gate/up experts"},
        {s.expert_scales && !has.expert_scales, "per-expert scales"},
        {s.experts == 0 && !has.dense, "form without experts"},
        {s.moe_every > 1 && !has.moe_every, "dense layers between those with experts"},
        {s.mtp_layers > 0 && !has.mtp, "MTP blocks"},
        {s.dense_layers > 0 && !has.dense_layers, "leading dense layers"},
        {s.clamp != 0 && !has.clamp, "a SwiGLU clamp"},
        {s.groups > 1 && !has.groups, "expert groups"},
    };
    for (const auto& [missing, what] : wants) {
        if (missing) return fail(ErrorKind::usage, "architecture '{}' has no {}", s.architecture, what);
    }
    if (s.layers < has.fewest_layers) {
        return fail(ErrorKind::usage, "architecture '{}' needs {} --layers at least, one of each kind", s.architecture,
                    has.fewest_layers);
    }
    if (has.square_attention && s.heads * s.head_dim != s.hidden) {
        return fail(ErrorKind::usage, "architecture '{}' needs --heads x --head-dim = --hidden, not {} x {} = {}",
                    s.architecture, s.heads, s.head_dim, s.hidden);
    }
    if (has.equal_heads && s.heads != s.kv_heads) {
        return fail(ErrorKind::usage, "architecture '{}' needs as many --kv-heads as --heads", s.architecture);
    }
    if (has.delta_net && s.linear_value_heads % s.linear_key_heads != 0) {
        return fail(ErrorKind::usage, "--linear-value-heads ({}) must be a multiple of --linear-key-heads ({})",
                    s.linear_value_heads, s.linear_key_heads);
    }
    return {};
}

// An expert's rows must be whole blocks: nothing else can be sliced, and there is no fallback as for dense matrices.
Status check_rows(ggml_type type, std::uint64_t row, std::string_view flag) {
    const auto block = static_cast<std::uint64_t>(ggml_blck_size(type));
    if (row % block == 0) return {};
    return fail(ErrorKind::usage, "{} is {}; {} needs a multiple of {}", flag, row, ggml_type_name(type), block);
}

Result<WeightTypes> weight_types(const SynthSpec& s) {
    auto or_else = [](const std::string& name, const std::string& fallback) { return name.empty() ? fallback : name; };
    WeightTypes types;
    const struct {
        ggml_type& into;
        std::string name;
        const char* flag;
    } wanted[] = {
        {types.expert, s.type, "--type"},
        {types.down, or_else(s.down_type, s.type), "--down-type"},
        {types.dense, s.dense_type, "--dense-type"},
        {types.embedding, or_else(s.embedding_type, s.dense_type), "--embedding-type"},
        {types.output, or_else(s.output_type, s.dense_type), "--output-type"},
    };
    for (const auto& [into, name, flag] : wanted) {
        Result<ggml_type> type = parse_type(name, flag);
        if (!type) return fail(type.error());
        into = *type;
    }
    if (s.experts == 0) return types;
    if (Status fits = check_rows(types.expert, s.hidden, "--hidden"); !fits) return fail(fits.error());
    if (Status fits = check_rows(types.down, s.ff, "--ff"); !fits) return fail(fits.error());
    if (s.down_every > 1) {
        if (Status fits = check_rows(types.expert, s.ff, "--ff"); !fits) return fail(fits.error());
    }
    return types;
}

void set_common(Builder& b, gguf_context* metadata) {
    const SynthSpec& s = b.spec();
    gguf_set_val_str(metadata, "general.architecture", s.architecture.c_str());
    gguf_set_val_str(metadata, "general.type", "model");
    gguf_set_val_str(metadata, "general.name", s.name.c_str());
    gguf_set_val_str(metadata, "general.description", "Random weights made by kvasir synth");
    gguf_set_val_u32(metadata, "general.quantization_version", GGML_QNT_VERSION);
    b.set("vocab_size", s.vocab);
    b.set("context_length", s.context);
    b.set("embedding_length", static_cast<std::uint32_t>(s.hidden));
    b.set("block_count", b.block_count());
    b.set("feed_forward_length", static_cast<std::uint32_t>(b.dense_ff()));
    b.set("attention.head_count", s.heads);
    b.set("attention.head_count_kv", s.kv_heads);
    b.set("attention.key_length", static_cast<std::uint32_t>(s.head_dim));
    b.set("attention.value_length", static_cast<std::uint32_t>(s.head_dim));
    b.set("attention.layer_norm_rms_epsilon", 1e-6F);
    b.set("rope.freq_base", 10000.0F);
    if (s.experts == 0) return;
    b.set("expert_count", s.experts);
    b.set("expert_used_count", s.used);
    b.set("expert_feed_forward_length", static_cast<std::uint32_t>(s.ff));
    if (s.mtp_layers > 0) b.set("nextn_predict_layers", s.mtp_layers);
    if (s.groups > 1) {
        b.set("expert_group_count", s.groups);
        b.set("expert_group_used_count", s.groups_used);
    }
}

}  // namespace

std::int64_t TensorPlan::rows() const {
    return std::accumulate(shape.begin() + 1, shape.end(), std::int64_t{1}, std::multiplies<>());
}

std::uint64_t ModelPlan::bytes() const {
    std::uint64_t total = 0;
    for (const TensorPlan& tensor : tensors)
        total += tensor.bytes();
    return total;
}

Result<ggml_type> parse_type(std::string_view name, std::string_view flag) {
    auto same = [&](std::string_view other) {
        return std::equal(name.begin(), name.end(), other.begin(), other.end(),
                          [](unsigned char a, unsigned char b) { return std::tolower(a) == std::tolower(b); });
    };
    static constexpr ggml_type kTypes[] = {
        GGML_TYPE_F32,     GGML_TYPE_F16,    GGML_TYPE_BF16,  GGML_TYPE_Q8_0,    GGML_TYPE_Q4_0,
        GGML_TYPE_Q4_1,    GGML_TYPE_Q5_0,   GGML_TYPE_Q5_1,  GGML_TYPE_Q2_K,    GGML_TYPE_Q3_K,
        GGML_TYPE_Q4_K,    GGML_TYPE_Q5_K,   GGML_TYPE_Q6_K,  GGML_TYPE_IQ1_S,   GGML_TYPE_IQ1_M,
        GGML_TYPE_IQ2_XXS, GGML_TYPE_IQ2_XS, GGML_TYPE_IQ2_S, GGML_TYPE_IQ3_XXS, GGML_TYPE_IQ3_S,
        GGML_TYPE_IQ4_NL,  GGML_TYPE_IQ4_XS, GGML_TYPE_TQ1_0, GGML_TYPE_TQ2_0,   GGML_TYPE_MXFP4,
    };
    std::vector<std::string_view> known;
    for (ggml_type type : kTypes) {
        if (same(ggml_type_name(type))) return type;
        known.emplace_back(ggml_type_name(type));
    }
    return fail(ErrorKind::usage, "{}: unknown type '{}'; known are {}", flag, name, fmt::join(known, ", "));
}

Result<ModelPlan> plan_model(const SynthSpec& spec) {
    if (Status fine = check_bounds(spec); !fine) return fail(fine.error());
    const std::vector<Architecture> all = architectures();
    auto found =
        std::find_if(all.begin(), all.end(), [&](const Architecture& one) { return spec.architecture == one.name; });
    if (found == all.end()) {
        return fail(ErrorKind::usage, "unknown architecture '{}'; known are {}", spec.architecture,
                    fmt::join(synth_architectures(), ", "));
    }
    if (Status fine = check_features(spec, *found); !fine) return fail(fine.error());
    Result<WeightTypes> types = weight_types(spec);
    if (!types) return fail(types.error());

    ModelPlan plan{GgufHandle(gguf_init_empty()), {}};
    Builder builder(spec, *types, plan);
    set_common(builder, plan.metadata.get());
    found->build(builder);
    add_tokenizer(plan.metadata.get(), spec.vocab);
    return plan;
}

}  // namespace kvasir::synth

namespace kvasir {

std::vector<std::string> synth_architectures() {
    std::vector<std::string> names;
    for (const synth::Architecture& architecture : synth::architectures())
        names.emplace_back(architecture.name);
    return names;
}

}  // namespace kvasir
