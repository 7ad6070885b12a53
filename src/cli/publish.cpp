// kvasir publish: the manifest of a model.
#include <nlohmann/json.hpp>

#include "base/interrupt.h"
#include "base/units.h"
#include "cli/command.h"
#include "gguf/manifest.h"
#include "gguf/slab_hash.h"

namespace kvasir::cli {
namespace {

constexpr const char* kDescription =
    "Hash every expert of a model and write its manifest, which gives the model its id";

constexpr const char* kFooter =
    "The id covers architecture, geometry, recipes and all expert weights; it is the same for a split and an unsplit\n"
    "file and does not cover the dense part. An interrupted run goes on where it ended: run the same command again.\n"
    "Examples:\n"
    "  kvasir publish model.gguf                       writes model.gguf.kvasir.json\n"
    "  kvasir publish model-00001-of-00003.gguf -o model.json --threads 2\n"
    "  kvasir publish model.gguf --json | jq -r .model_id";

struct Flags {
    std::string model;
    std::string out;
    int threads = 0;
    bool json = false;
};

struct Summary {
    std::filesystem::path path;
    std::uint64_t layers = 0;
    std::uint64_t experts = 0;
    std::uint64_t slabs = 0;
    std::uint64_t bytes = 0;
    double wall_rate = 0;  // bytes per second
    double core_rate = 0;  // bytes per second of processor time
};

Summary summarize(const PublishReport& report, const std::filesystem::path& path) {
    Summary summary{.path = path, .bytes = report.hashed_bytes + report.resumed_bytes};
    for (const ManifestLayer& layer : report.manifest.layers) {
        ++summary.layers;
        summary.experts += layer.experts;
        summary.slabs += std::uint64_t{layer.experts} * layer.tensors.size();
    }
    auto hashed = static_cast<double>(report.hashed_bytes);
    if (report.seconds > 0) summary.wall_rate = hashed / report.seconds;
    if (report.cpu_seconds > 0) summary.core_rate = hashed / report.cpu_seconds;
    return summary;
}

void print_json(const PublishReport& report, const Summary& summary) {
    nlohmann::ordered_json json = {{"model_id", to_hex(report.manifest.model_id())},
                                   {"manifest", summary.path.string()},
                                   {"layers", summary.layers},
                                   {"experts", summary.experts},
                                   {"slabs", summary.slabs},
                                   {"bytes", summary.bytes},
                                   {"hashed_bytes", report.hashed_bytes},
                                   {"resumed_bytes", report.resumed_bytes},
                                   {"seconds", report.seconds},
                                   {"cpu_seconds", report.cpu_seconds}};
    fmt::print("{}\n", json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

void print_text(const PublishReport& report, const Summary& summary) {
    fmt::print("model id   {}\n", to_hex(report.manifest.model_id()));
    fmt::print("manifest   {}\n", summary.path.string());
    fmt::print("experts    {} in {} layers, {} slabs, {}\n", human_count(summary.experts), summary.layers,
               human_count(summary.slabs), human_bytes(summary.bytes));
    fmt::print("hashed     {} in {}: {:.2f} GB/s, {:.2f} GB per core-second\n", human_bytes(report.hashed_bytes),
               human_seconds(report.seconds), summary.wall_rate / 1e9, summary.core_rate / 1e9);
    if (report.resumed_bytes > 0) {
        fmt::print("resumed    {} were hashed by an earlier run\n", human_bytes(report.resumed_bytes));
    }
}

Result<int> run(const Flags& flags) {
    Result<GgufModel> model = GgufModel::open(flags.model);
    if (!model) return fail(model.error());
    Result<ExpertMap> map = map_experts(*model);
    if (!map) return fail(map.error().within(flags.model));
    std::filesystem::path out = flags.out;
    if (out.empty()) out = manifest_path(model->files().front().path);
    PublishOptions options;
    options.threads = flags.threads > 0 ? flags.threads : default_threads();
    options.quiet = flags.json;
    options.cancel = &interruption();
    Result<PublishReport> report = publish_to(out, *model, *map, options);
    if (!report) return fail(report.error());
    Summary summary = summarize(*report, out);
    if (flags.json) {
        print_json(*report, summary);
    } else {
        print_text(*report, summary);
    }
    return 0;
}

}  // namespace

void add_publish(CLI::App& app, Action& action) {
    auto flags = std::make_shared<Flags>();
    CLI::App* command = app.add_subcommand("publish", kDescription);
    command->footer(kFooter);
    command->add_option("MODEL", flags->model, "A GGUF file; of a split model, any of its files")->required();
    command->add_option("-o,--out", flags->out, "The manifest to write (default: MODEL.kvasir.json)");
    command->add_option("--threads", flags->threads, "Hashing threads (default: all cores)")->check(CLI::Range(1, 256));
    command->add_flag("--json", flags->json, "Print the result as JSON, and no progress");
    command->callback([flags, &action] {
        action = [flags] {
            return interruptibly([flags] { return run(*flags); }, "run the same command again to go on where it ended");
        };
    });
}

}  // namespace kvasir::cli
