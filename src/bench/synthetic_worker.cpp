#include "bench/synthetic_worker.h"

#include <chrono>

#include "expert/engine.h"
#include "gguf/manifest.h"
#include "gguf/slice.h"
#include "synth/synth.h"

namespace kvasir {
namespace {

constexpr std::chrono::seconds kStartDeadline{60};
constexpr std::chrono::seconds kCallDeadline{30};

SynthSpec specification(const SyntheticShape& shape) {
    SynthSpec spec;
    spec.name = "bench";
    spec.architecture = "qwen3moe";
    spec.layers = shape.layers;
    spec.experts = shape.experts;
    spec.used = 1;
    spec.hidden = shape.hidden;
    spec.ff = shape.ff;
    spec.type = "Q4_K";
    return spec;
}

// Publishes and slices the model at `path` whole.
Result<std::filesystem::path> cut(const std::filesystem::path& path, SyntheticWorker& worker) {
    Result<GgufModel> model = GgufModel::open(path);
    if (!model) return fail(model.error());
    Result<ExpertMap> map = map_experts(*model);
    if (!map) return fail(map.error());
    Result<PublishReport> published = publish(*model, *map, {.threads = 1, .quiet = true, .journal = {}});
    if (!published) return fail(published.error());
    std::vector<Piece> pieces;
    for (const ExpertLayer& layer : map->layers)
        pieces.push_back({layer.layer, 0, layer.experts});
    std::filesystem::path slice = worker.directory.path() / "slice.gguf";
    Result<SliceReport> sliced = write_slice(*model, *map, &published->manifest, pieces, slice, true);
    if (!sliced) return fail(sliced.error());
    worker.model_id = published->manifest.model_id();
    worker.map = *map;
    return slice;
}

// The address in a worker's "ready: listening on HOST:PORT, …" line.
Result<Address> listening_address(const std::string& line) {
    constexpr std::string_view kBefore = "listening on ";
    std::size_t begin = line.find(kBefore);
    std::size_t end = line.find(',', begin);
    if (begin == std::string::npos) return fail(ErrorKind::internal, "no address in the worker's line '{}'", line);
    begin += kBefore.size();
    return parse_address(std::string_view(line).substr(begin, end - begin), 0);
}

}  // namespace

Result<SyntheticWorker> start_synthetic_worker(const std::filesystem::path& program, const SyntheticShape& shape,
                                               bool tls) {
    Result<TempDirectory> directory = TempDirectory::create("kvasir-bench-");
    if (!directory) return fail(directory.error());
    SyntheticWorker worker{std::move(*directory), {}, {}, nullptr, {}, nullptr};
    std::filesystem::path model = worker.directory.path() / "model.gguf";
    if (auto made = synthesize(specification(shape), model); !made) return fail(made.error());
    Result<std::filesystem::path> slice = cut(model, worker);
    if (!slice) return fail(slice.error());

    std::vector<std::string> arguments = {program.string(), "worker",      "--slice",   slice->string(),
                                          "--listen",       "127.0.0.1:0", "--threads", "1"};
    if (tls) {
        Result<Identity> backbone = Identity::generate();
        Result<Identity> node = Identity::generate();
        if (!backbone) return fail(backbone.error());
        if (!node) return fail(node.error());
        std::filesystem::path key = worker.directory.path() / "worker.pem";
        if (Status saved = node->save(key); !saved) return fail(saved.error());
        arguments.insert(arguments.end(), {"--identity", key.string(), "--admit", to_hex(backbone->id())});
        worker.endpoint.id = node->id();
        worker.backbone = std::make_shared<const Identity>(std::move(*backbone));
    } else {
        arguments.emplace_back("--insecure-loopback");
    }
    auto process = ChildProcess::start({.arguments = arguments, .environment = {}});
    if (!process) return fail(process.error());
    worker.process = std::move(*process);
    Result<std::string> ready = worker.process->wait_for_line("listening on ", kStartDeadline);
    if (!ready) return fail(ready.error().within("the worker"));
    Result<Address> address = listening_address(*ready);
    if (!address) return fail(address.error());
    worker.endpoint.address = *address;
    return worker;
}

Result<std::unique_ptr<Dispatcher>> connect_to(const SyntheticWorker& worker, Arithmetic arithmetic) {
    SwarmConfig config;
    config.workers = {worker.endpoint};
    config.identity = worker.backbone;
    config.model_id = worker.model_id;
    config.arithmetic = arithmetic;
    config.deadline = kCallDeadline;
    Result<std::unique_ptr<Dispatcher>> dispatcher = Dispatcher::create(config);
    if (!dispatcher) return fail(dispatcher.error());
    if (!(*dispatcher)->wait_for_workers(kStartDeadline)) {
        return fail(ErrorKind::unavailable, "the worker does not serve: {}", (*dispatcher)->stats().workers[0].reason);
    }
    return dispatcher;
}

OneRowCall::OneRowCall(const ExpertLayer& layer, Arithmetic arithmetic) : out_(layer.experts * layer.hidden) {
    const RowEncoding encoding = input_encoding(arithmetic, view_weights(layer, {}));
    const std::vector<float> row(layer.hidden, 0.25F);
    row_.resize(row_bytes(encoding, layer.hidden));
    encode_rows(encoding, layer.hidden, row, row_);
    for (std::uint32_t expert = 0; expert < layer.experts; ++expert)
        pairs_.push_back({0, expert});
    call_ = {.layer = layer.layer,
             .hidden = static_cast<std::uint32_t>(layer.hidden),
             .recipe = layer.recipe,
             .row_encoding = encoding,
             .rows = row_,
             .pairs = pairs_,
             .out = out_};
}

Status NoLocalExperts::compute(const ExpertCall& call, std::span<const Pair>, std::span<float>) {
    return fail(ErrorKind::unavailable, "layer {}: a call went to the local replica instead of the worker", call.layer);
}

}  // namespace kvasir
