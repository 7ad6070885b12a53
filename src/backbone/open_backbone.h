// From what a user says (a model, workers) to what the backend needs: the manifest checked against the model, the
// identity, and the dispatcher with its connections on their way. Shared by `kvasir serve`, the plugin and the tools.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backbone/dispatcher.h"
#include "backbone/ggml_backend.h"
#include "base/result.h"
#include "gguf/expert_map.h"
#include "gguf/manifest.h"

namespace kvasir {

struct BackboneOptions {
    std::filesystem::path model;
    std::filesystem::path manifest;    // empty: beside the model
    std::filesystem::path identity;    // empty: default_identity_path(); made when missing
    std::vector<std::string> workers;  // "HOST:PORT#NODEID"; none: M0, and neither manifest nor identity is needed
    std::chrono::milliseconds deadline{2000};
    Arithmetic arithmetic = Arithmetic::portable;
    // Workers get every pair they hold, even what this machine would compute sooner (see SwarmConfig::prefer_remote).
    bool prefer_workers = false;
    bool strict = false;             // what is audited of the workers' answers is used only once it was checked
    std::filesystem::path evidence;  // for signed wrong answers; empty: default_evidence_directory()
    bool insecure_loopback = false;  // allows "HOST:PORT" without TLS, on loopback
};

struct Backbone {
    ExpertMap map;
    BackendConfig config;      // for register_backend() or Backend::configure(); empty for M0
    std::optional<NodeId> id;  // ours, which the workers must admit; none where no connection uses TLS
    std::optional<Digest> model_id;
};

// Errors name what is missing and what to do: no manifest (run `kvasir publish`), a manifest of another model, a dense
// model, a bad worker address. Besides the headers it reads one expert per layer, which is compared with the manifest.
Result<Backbone> open_backbone(const BackboneOptions& options);

// The plugin's configuration, a JSON object: "model", "manifest", "identity", "evidence" (paths; relative ones start at
// `base`), "workers" (array of strings), "deadline_ms", "arithmetic" ("portable" or "ggml-cpu"), "prefer_workers",
// "strict", "insecure_loopback". Unknown keys and wrong types are refused by name.
Result<BackboneOptions> parse_backbone_options(std::string_view json, const std::filesystem::path& base);

// One worker per line, "#" alone or before a blank begins a comment.
Result<std::vector<std::string>> read_workers_file(const std::filesystem::path& path);

// "worker a:7411: serving, 64 experts", "worker b:7411: set aside (no answer in 2 s)".
std::string describe_worker(const WorkerStatus& worker);

}  // namespace kvasir
