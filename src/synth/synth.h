// Makes random-weight MoE models (GGUF) that llama.cpp loads and runs, of any geometry and quantisation, for tests and
// benchmarks. The same specification gives the same bytes on any number of threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace kvasir {

// What a model looks like. Zero or empty means "the architecture's own choice" where a field says so.
struct SynthSpec {
    std::string name = "synth";      // general.name
    std::string architecture = {};   // llama.cpp's name: "qwen3moe", "gpt-oss", "llama", …
    std::uint32_t layers = 2;        // decoder blocks
    std::uint32_t mtp_layers = 0;    // multi-token-prediction blocks after them (0 or 1; where there are such)
    std::uint32_t dense_layers = 0;  // leading blocks without experts (where the architecture allows it)
    std::uint32_t moe_every = 1;     // experts in every n-th layer only (llama4)
    std::uint32_t experts = 8;       // per layer; 0: a dense model (llama)
    std::uint32_t used = 2;          // top-k
    std::uint32_t groups = 0;        // expert groups of the router; 0: none
    std::uint32_t groups_used = 0;
    std::uint64_t hidden = 128;
    std::uint64_t ff = 96;        // one routed expert's
    std::uint64_t shared_ff = 0;  // the shared expert's; 0: as `ff` where the architecture has one
    std::uint64_t dense_ff = 0;   // a dense layer's; 0: as `ff`
    std::uint32_t heads = 4;
    std::uint32_t kv_heads = 2;
    std::uint64_t head_dim = 32;
    std::uint32_t linear_key_heads = 2;    // Gated DeltaNet
    std::uint32_t linear_value_heads = 4;  // Gated DeltaNet
    std::uint64_t state_size = 32;         // Gated DeltaNet's head size; the state of a Mamba layer
    std::uint32_t vocab = 512;             // at least 260
    std::uint32_t context = 4096;
    std::string type = "Q8_0";        // experts' gate and up
    std::string down_type = {};       // experts' down; empty: as `type`
    std::uint32_t down_every = 1;     // `down_type` in every n-th layer, `type` in the others (the K_M mixes)
    std::string dense_type = "Q8_0";  // attention, dense and shared FFN
    std::string embedding_type = {};  // token embedding; empty: as `dense_type`
    std::string output_type = {};     // output matrix; empty: as `dense_type`
    bool fused_gate_up = false;       // one ffn_gate_up_exps tensor (where the architecture loads it)
    bool expert_scales = false;       // ffn_*_exps.scale, one per expert (where the architecture uses them)
    float clamp = 0.0F;               // swiglu_clamp_exp; 0: the architecture's own
    std::uint64_t seed = 1;
    bool header_only = false;  // metadata and tensor infos, no data; the key kvasir.header_only says so
};

struct SynthOptions {
    int threads = 0;                            // 0: as many as the machine has
    std::uint32_t splits = 1;                   // > 1: OUT-00001-of-0000N.gguf, …
    bool quiet = true;                          // no progress line
    const std::atomic<bool>* cancel = nullptr;  // when set by anybody: ends with ErrorKind::unavailable
};

struct SynthReport {
    std::vector<std::filesystem::path> files;
    std::uint64_t bytes = 0;        // written
    std::uint64_t model_bytes = 0;  // of all tensors, written or not
    double seconds = 0;
};

// The named specifications, tiny ones first.
std::vector<std::string> preset_names();
// One line about a preset; empty for an unknown name.
std::string preset_description(std::string_view name);
// ErrorKind::usage, listing the known names, for an unknown one.
Result<SynthSpec> preset(std::string_view name);
// The architectures that synthesize() knows, by llama.cpp's names.
std::vector<std::string> synth_architectures();

// Writes the model to `out` (atomically: the file appears when it is complete). ErrorKind::usage for a geometry that
// the architecture or the quantisation does not allow and for a directory that is not there, ErrorKind::io when the
// disk is too full; nothing is written then.
Result<SynthReport> synthesize(const SynthSpec& spec, const std::filesystem::path& out,
                               const SynthOptions& options = {});

}  // namespace kvasir
