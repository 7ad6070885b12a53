#include "verify/local_swarm.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/files.h"
#include "gguf/slice.h"

namespace kvasir {
namespace {

constexpr std::chrono::seconds kPatience{60};

std::filesystem::path beside(const std::filesystem::path& model, const std::string& name) {
    return model.parent_path() / name;
}

}  // namespace

Status LocalSwarm::publish_model() {
    Result<GgufModel> model = GgufModel::open(model_);
    if (!model) return fail(model.error());
    Result<ExpertMap> map = map_experts(*model);
    if (!map) return fail(map.error());
    PublishOptions options;
    options.quiet = true;
    Result<PublishReport> report = publish(*model, *map, options);
    if (!report) return fail(report.error());
    return write_text_file(manifest_path(model_), to_json(report->manifest));
}

// Serves the share [from, to) of every layer's experts, but never the last expert.
Status LocalSwarm::add_worker(const Identity& backbone, const std::string& name, double from, double to) {
    Result<GgufModel> model = GgufModel::open(model_);
    if (!model) return fail(model.error());
    Result<ExpertMap> map = map_experts(*model);
    if (!map) return fail(map.error());
    Result<Manifest> manifest = load_manifest(manifest_path(model_));
    if (!manifest) return fail(manifest.error());
    std::vector<Piece> pieces;
    for (const ExpertLayer& layer : map->layers) {
        const auto first = static_cast<std::uint32_t>(from * layer.experts);
        const auto end = std::min(static_cast<std::uint32_t>(to * layer.experts), layer.experts - 1);
        pieces.push_back({layer.layer, first, end - first});
    }
    const std::filesystem::path slice = beside(model_, name + ".slice.gguf");
    Result<SliceReport> cut = write_slice(*model, *map, &*manifest, pieces, slice, true);
    if (!cut) return fail(cut.error());

    Result<Identity> identity = Identity::generate();
    if (!identity) return fail(identity.error());
    ServerOptions options;
    options.listen = {"127.0.0.1", 0};
    options.identity = std::make_shared<const Identity>(*identity);
    options.admitted = {backbone.id()};
    Result<std::unique_ptr<Server>> server = Server::bind(std::move(options));
    if (!server) return fail(server.error());
    Result<PieceStore> store = PieceStore::open(std::array{slice}, 1);
    if (!store) return fail(store.error());
    if (Status serving = (*server)->serve(std::move(*store)); !serving) return serving;
    endpoints_.push_back(fmt::format("{}#{}", (*server)->local_address().text(), to_hex(identity->id())));
    servers_.push_back(std::move(*server));
    return {};
}

Result<std::unique_ptr<LocalSwarm>> LocalSwarm::start(const std::filesystem::path& model) {
    std::unique_ptr<LocalSwarm> swarm(new LocalSwarm);
    swarm->model_ = model;
    if (Status published = swarm->publish_model(); !published) return fail(published.error());
    Result<Identity> backbone = Identity::load_or_create(beside(model, "backbone.pem"));
    if (!backbone) return fail(backbone.error());
    if (Status added = swarm->add_worker(*backbone, "first", 0, 0.625); !added) return fail(added.error());
    if (Status added = swarm->add_worker(*backbone, "second", 0.5, 1); !added) return fail(added.error());
    return swarm;
}

Result<BackendConfig> LocalSwarm::connect(Arithmetic arithmetic) {
    BackboneOptions options;
    options.model = model_;
    options.identity = beside(model_, "backbone.pem");
    options.workers = endpoints_;
    options.deadline = kPatience;  // a loaded machine must not turn remote pairs into local ones
    options.prefer_workers = true;
    options.arithmetic = arithmetic;
    Result<Backbone> backbone = open_backbone(options);
    if (!backbone) return fail(backbone.error());
    if (!backbone->config.dispatcher->wait_for_workers(kPatience)) {
        return fail(ErrorKind::unavailable, "not all workers serve");
    }
    return backbone->config;
}

}  // namespace kvasir
