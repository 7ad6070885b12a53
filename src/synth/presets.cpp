#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "synth/synth.h"

namespace kvasir {
namespace {

struct Preset {
    const char* description;
    SynthSpec spec;
};

// Tiny models of one to four MB, one for every expert recipe and kind of block.
std::vector<Preset> tiny_presets() {
    return {
        {"SwiGLU, Q4_K with Q6_K down",
         {.name = "tiny-qwen3moe",
          .architecture = "qwen3moe",
          .layers = 3,
          .hidden = 256,
          .ff = 256,
          .type = "Q4_K",
          .down_type = "Q6_K"}},
        {"Mixtral-like llama, Q4_0", {.name = "tiny-mixtral", .architecture = "llama", .layers = 3, .type = "Q4_0"}},
        {"SwiGLU-OAI with biases, MXFP4",
         {.name = "tiny-gpt-oss", .architecture = "gpt-oss", .layers = 4, .ff = 128, .type = "MXFP4"}},
    };
}

std::vector<Preset> presets() {
    return tiny_presets();
}

}  // namespace

std::vector<std::string> preset_names() {
    std::vector<std::string> names;
    for (const Preset& preset : presets())
        names.push_back(preset.spec.name);
    return names;
}

std::string preset_description(std::string_view name) {
    for (const Preset& preset : presets()) {
        if (preset.spec.name == name) return preset.description;
    }
    return "";
}

Result<SynthSpec> preset(std::string_view name) {
    for (const Preset& preset : presets()) {
        if (preset.spec.name == name) return preset.spec;
    }
    return fail(ErrorKind::usage, "unknown preset '{}'; known are {}", name, fmt::join(preset_names(), ", "));
}

}  // namespace kvasir
