#include "backbone/open_backbone.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "backbone/evidence.h"
#include "backbone/model_reference.h"
#include "base/files.h"
#include "base/units.h"
#include "expert/engine.h"
#include "net/identity.h"

namespace kvasir {
namespace {

constexpr std::uint64_t kLargestWorkersFile = 1 << 20;
constexpr std::size_t kMostWorkers = 4096;
constexpr std::uint64_t kLongestDeadline = 3'600'000;  // ms

// Reads one slab and compares it with the manifest.
Status check_slab(const GgufModel& model, const ManifestLayer& listed, const ExpertTensor& tensor) {
    const ManifestTensor* entry = listed.find(tensor.role);
    if (entry == nullptr || entry->slabs.empty()) {
        return fail(ErrorKind::invalid, "'{}' is not in the manifest", tensor.info.name);
    }
    Result<File> file = File::open(model.files().at(tensor.info.file).path);
    if (!file) return fail(file.error());
    ByteVector slab(tensor.slab_bytes);
    if (Status read = file->read_at(tensor.slab_offset(0), slab); !read) return read;
    if (sha256(slab) == entry->slabs.front()) return {};
    return fail(ErrorKind::invalid, "'{}', expert 0: the model's bytes are not the manifest's", tensor.info.name);
}

Status check_manifest(const GgufModel& model, const ExpertMap& map, const Manifest& manifest) {
    if (Status same = matches(manifest, map); !same) return same;
    for (const ExpertLayer& layer : map.layers) {
        const ManifestLayer* listed = manifest.find(layer.layer);
        if (listed == nullptr) return fail(ErrorKind::invalid, "layer {} is not in the manifest", layer.layer);
        for (const ExpertTensor& tensor : layer.tensors) {
            if (Status same = check_slab(model, *listed, tensor); !same) return same;
        }
    }
    return {};
}

Result<std::shared_ptr<const Manifest>> open_manifest(const BackboneOptions& options, const GgufModel& model,
                                                      const ExpertMap& map) {
    bool named = !options.manifest.empty();
    std::filesystem::path path = named ? options.manifest : manifest_path(model.files().front().path);
    std::error_code error;
    if (!named && !std::filesystem::exists(path, error)) {
        return fail(ErrorKind::usage,
                    "workers need the model's manifest, and there is none at {}: run 'kvasir publish {}'",
                    path.string(), options.model.string());
    }
    Result<Manifest> manifest = load_manifest(path);
    if (!manifest) return fail(manifest.error());
    if (Status same = check_manifest(model, map, *manifest); !same) {
        return fail(same.error().within(fmt::format("{} is not the manifest of {} (run 'kvasir publish' again?)",
                                                    path.string(), options.model.string())));
    }
    return std::make_shared<const Manifest>(std::move(*manifest));
}

Status start_swarm(const BackboneOptions& options, const GgufModel& model, Backbone& backbone) {
    SwarmConfig swarm;
    // Two, so that a check before use never waits for an audit, which has time.
    for (auto* reference : {&swarm.audit_reference, options.strict ? &swarm.strict_reference : nullptr}) {
        if (reference == nullptr) continue;
        Result<std::shared_ptr<AuditReference>> made =
            make_model_reference(model, backbone.map, backbone.config.manifest, options.arithmetic);
        if (!made) return fail(made.error());
        *reference = std::move(*made);
    }
    swarm.evidence = options.evidence.empty() ? default_evidence_directory() : options.evidence;
    swarm.model_id = *backbone.model_id;
    swarm.arithmetic = options.arithmetic;
    swarm.deadline = options.deadline;
    swarm.prefer_remote = options.prefer_workers;
    for (const std::string& text : options.workers) {
        Result<WorkerEndpoint> worker = parse_worker(text, options.insecure_loopback);
        if (!worker) return fail(worker.error());
        swarm.workers.push_back(std::move(*worker));
    }
    if (std::any_of(swarm.workers.begin(), swarm.workers.end(), [](const auto& w) { return w.id.has_value(); })) {
        Result<Identity> identity =
            Identity::load_or_create(options.identity.empty() ? default_identity_path() : options.identity);
        if (!identity) return fail(identity.error());
        backbone.id = identity->id();
        swarm.identity = std::make_shared<const Identity>(std::move(*identity));
    }
    Result<std::unique_ptr<Dispatcher>> dispatcher = Dispatcher::create(std::move(swarm));
    if (!dispatcher) return fail(dispatcher.error());
    backbone.config.dispatcher = std::move(*dispatcher);
    return {};
}

// One key of the configuration, taken out of `json` so that what is left is unknown.
template <class T>
Status take(nlohmann::json& json, const char* key, T& into) {
    auto found = json.find(key);
    if (found == json.end()) return {};
    try {
        into = found->template get<T>();
    } catch (const nlohmann::json::exception&) {
        return fail(ErrorKind::usage, "\"{}\" has the wrong type: {}", key, found->dump());
    }
    json.erase(found);
    return {};
}

std::filesystem::path resolve(const std::filesystem::path& base, const std::string& text) {
    return text.empty() ? std::filesystem::path() : base / text;
}

}  // namespace

Result<Backbone> open_backbone(const BackboneOptions& options) {
    Result<GgufModel> model = GgufModel::open(options.model);
    if (!model) return fail(model.error());
    Result<ExpertMap> map = map_experts(*model);
    if (!map) return fail(map.error());
    Backbone backbone{.map = std::move(*map), .config = {}, .id = {}, .model_id = {}};
    backbone.config.arithmetic = options.arithmetic;
    if (options.workers.empty()) return backbone;
    if (backbone.map.layers.empty()) {
        return fail(ErrorKind::usage, "{} has no routed experts: there is nothing that workers could compute",
                    options.model.string());
    }
    Result<std::shared_ptr<const Manifest>> manifest = open_manifest(options, *model, backbone.map);
    if (!manifest) return fail(manifest.error());
    backbone.config.manifest = std::move(*manifest);
    backbone.model_id = backbone.config.manifest->model_id();
    if (Status started = start_swarm(options, *model, backbone); !started) return fail(started.error());
    return backbone;
}

Result<BackboneOptions> parse_backbone_options(std::string_view text, const std::filesystem::path& base) {
    nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
    if (!json.is_object()) return fail(ErrorKind::usage, "it is not a JSON object");
    BackboneOptions options;
    std::string model;
    std::string manifest;
    std::string identity;
    std::string evidence;
    std::string arithmetic(short_name(options.arithmetic));
    auto deadline = static_cast<std::uint64_t>(options.deadline.count());
    for (Status taken : {take(json, "model", model), take(json, "manifest", manifest), take(json, "identity", identity),
                         take(json, "evidence", evidence), take(json, "strict", options.strict),
                         take(json, "workers", options.workers), take(json, "deadline_ms", deadline),
                         take(json, "prefer_workers", options.prefer_workers), take(json, "arithmetic", arithmetic),
                         take(json, "insecure_loopback", options.insecure_loopback)}) {
        if (!taken) return fail(taken.error());
    }
    if (!json.empty()) return fail(ErrorKind::usage, "unknown key \"{}\"", json.begin().key());
    if (model.empty()) return fail(ErrorKind::usage, "\"model\" is missing: the path of the model that is served");
    if (deadline == 0 || deadline > kLongestDeadline) {
        return fail(ErrorKind::usage, "\"deadline_ms\" is {}: 1 to {} are possible", deadline, kLongestDeadline);
    }
    if (options.workers.size() > kMostWorkers) {
        return fail(ErrorKind::usage, "{} workers: at most {} are possible", options.workers.size(), kMostWorkers);
    }
    Result<Arithmetic> parsed = parse_arithmetic(arithmetic);
    if (!parsed) return fail(parsed.error().within("\"arithmetic\""));
    options.arithmetic = *parsed;
    options.model = resolve(base, model);
    options.manifest = resolve(base, manifest);
    options.identity = resolve(base, identity);
    options.evidence = resolve(base, evidence);
    options.deadline = std::chrono::milliseconds(deadline);
    return options;
}

Result<std::vector<std::string>> read_workers_file(const std::filesystem::path& path) {
    Result<std::string> text = read_text_file(path, kLargestWorkersFile);
    if (!text) return fail(text.error());
    std::vector<std::string> workers;
    std::istringstream lines(*text);
    for (std::string line; std::getline(lines, line);) {
        // A '#' inside a word separates address and node id; at a word's beginning it starts a comment.
        std::istringstream words(line);
        std::string word;
        if (!(words >> word) || word.front() == '#') continue;
        workers.push_back(word);
        if (words >> word && word.front() != '#') {
            return fail(ErrorKind::usage, "{}: one worker per line, but '{}' follows '{}'", path.string(), word,
                        workers.back());
        }
    }
    if (workers.size() > kMostWorkers) {
        return fail(ErrorKind::usage, "{}: {} workers; at most {} are possible", path.string(), workers.size(),
                    kMostWorkers);
    }
    return workers;
}

std::string describe_worker(const WorkerStatus& worker) {
    std::string text = fmt::format("worker {}: {}", worker.endpoint.address.text(), state_name(worker.state));
    if (worker.state == WorkerStatus::State::serving) {
        text += fmt::format(", {} experts", human_count(worker.experts_held));
    }
    if (!worker.reason.empty()) text += fmt::format(" ({})", worker.reason);
    return text;
}

}  // namespace kvasir
