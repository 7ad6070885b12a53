// From a specification to a complete list of what a GGUF file holds: metadata and tensors with how to fill them.
#pragma once

#include <ggml.h>
#include <gguf.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "synth/synth.h"

namespace kvasir::synth {

// How a tensor's numbers are drawn: mean + deviation × (roughly normal), or minus its magnitude.
struct Fill {
    float mean = 0.0F;
    float deviation = 1.0F;
    bool negative = false;
};

struct TensorPlan {
    std::string name;
    ggml_type type = GGML_TYPE_F32;
    std::vector<std::int64_t> shape;  // innermost first
    Fill fill;

    std::int64_t row() const { return shape[0]; }
    std::int64_t rows() const;
    std::uint64_t row_bytes() const { return ggml_row_size(type, row()); }
    std::uint64_t bytes() const { return row_bytes() * static_cast<std::uint64_t>(rows()); }
};

struct GgufDeleter {
    void operator()(gguf_context* context) const { gguf_free(context); }
};
using GgufHandle = std::unique_ptr<gguf_context, GgufDeleter>;

struct ModelPlan {
    GgufHandle metadata;  // no tensors in it
    std::vector<TensorPlan> tensors;

    std::uint64_t bytes() const;
};

// Everything that can be wrong with a specification is refused here, by name (ErrorKind::usage).
Result<ModelPlan> plan_model(const SynthSpec& spec);

// "Q4_K" (either case) → type; ErrorKind::usage, listing them, for one that no weights can be made of.
Result<ggml_type> parse_type(std::string_view name, std::string_view flag);

}  // namespace kvasir::synth
