// kvasir slice: cuts experts out of a model, and checks what was cut.
#include "gguf/slice.h"

#include <nlohmann/json.hpp>

#include "base/interrupt.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/selection.h"

namespace kvasir::cli {
namespace {

constexpr const char* kDescription = "Cut experts out of a model into a slice that a worker serves, or check a slice";

constexpr const char* kFooter =
    "With a manifest (see kvasir publish) every slab is compared with its digest before the slice appears.\n"
    "Repeated --layers and --experts go together in pairs, so that one file may hold several selections; what\n"
    "overlaps is taken once. Without --experts all experts are taken, without --layers all layers that have some.\n"
    "Examples:\n"
    "  kvasir slice model.gguf --layers 0-3,7 --experts 0-63 -o part.gguf\n"
    "  kvasir slice model.gguf --layers 0-3 --experts 0-63 --layers 8 --experts 5 -o two.gguf\n"
    "  kvasir slice model.gguf --piece 0-3:0-63 --piece 8:5 -o two.gguf      the same\n"
    "  kvasir slice --check part.gguf --manifest model.gguf.kvasir.json      exit code 3: damaged";

struct Flags {
    std::string model;
    std::vector<std::string> layers;
    std::vector<std::string> experts;
    std::vector<std::string> pieces;
    std::string out;
    std::string manifest;
    std::string check;
    bool json = false;
};

Result<std::vector<Selection>> selections_of(const Flags& flags) {
    std::vector<Selection> selections;
    std::size_t pairs = std::max(flags.layers.size(), flags.experts.size());
    bool one_sided = flags.layers.empty() || flags.experts.empty();
    if (!one_sided && flags.layers.size() != flags.experts.size()) {
        return fail(ErrorKind::usage, "--layers is given {} times and --experts {} times; they go together in pairs",
                    flags.layers.size(), flags.experts.size());
    }
    for (std::size_t i = 0; i < pairs; ++i) {
        selections.push_back(
            {flags.layers.empty() ? "" : flags.layers[i], flags.experts.empty() ? "" : flags.experts[i]});
    }
    for (const std::string& piece : flags.pieces) {
        Result<Selection> selection = parse_piece_option(piece);
        if (!selection) return fail(selection.error());
        selections.push_back(std::move(*selection));
    }
    if (selections.empty()) {
        return fail(ErrorKind::usage, "say what to cut, with --layers and --experts or with --piece");
    }
    return selections;
}

// The one that was named, or the one beside the model if there is one.
Result<std::optional<Manifest>> find_manifest(const std::string& named, const std::filesystem::path& model) {
    std::filesystem::path path = named.empty() ? manifest_path(model) : std::filesystem::path(named);
    std::error_code ignored;
    if (named.empty() && !std::filesystem::exists(path, ignored)) return std::optional<Manifest>();
    Result<Manifest> manifest = load_manifest(path);
    if (!manifest) return fail(manifest.error());
    return std::optional<Manifest>(std::move(*manifest));
}

void print(const nlohmann::ordered_json& json) {
    fmt::print("{}\n", json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

void print_report(const Flags& flags, const std::vector<Piece>& pieces, const Manifest* manifest,
                  const SliceReport& report) {
    double rate = report.seconds > 0 ? static_cast<double>(report.bytes) / report.seconds / 1e9 : 0;
    if (flags.json) {
        nlohmann::ordered_json list = nlohmann::ordered_json::array();
        for (const Piece& piece : pieces) {
            list.push_back({{"layer", piece.layer}, {"first", piece.first}, {"count", piece.count}});
        }
        nlohmann::ordered_json id;
        if (manifest != nullptr) id = to_hex(manifest->model_id());
        print({{"slice", flags.out},
               {"model_id", id},
               {"pieces", list},
               {"bytes", report.bytes},
               {"slab_bytes", report.slab_bytes},
               {"verified", report.verified},
               {"seconds", report.seconds},
               {"copy_seconds", report.copy_seconds},
               {"verify_seconds", report.verify_seconds}});
        return;
    }
    fmt::print("slice      {} ({})\n", flags.out, human_bytes(report.bytes));
    fmt::print("holds      {}\n", describe(pieces));
    if (manifest != nullptr) fmt::print("model id   {}\n", to_hex(manifest->model_id()));
    fmt::print("took       {}: {:.2f} GB/s (copy {}, {} {})\n", human_seconds(report.seconds), rate,
               human_seconds(report.copy_seconds), report.verified ? "verification" : "hashing",
               human_seconds(report.verify_seconds));
    if (!report.verified) {
        fmt::print("verified   no: there is no manifest of the model (kvasir publish makes one), hence no model id\n");
    }
}

Result<int> cut(const Flags& flags) {
    if (flags.model.empty()) return fail(ErrorKind::usage, "name the model to cut from, or a slice with --check");
    if (flags.out.empty()) return fail(ErrorKind::usage, "name the slice to write with -o");
    Result<GgufModel> model = GgufModel::open(flags.model);
    if (!model) return fail(model.error());
    Result<ExpertMap> map = map_experts(*model);
    if (!map) return fail(map.error().within(flags.model));
    Result<std::vector<Selection>> selections = selections_of(flags);
    if (!selections) return fail(selections.error().within(flags.model));
    Result<std::vector<Piece>> pieces = pieces_of(*map, *selections);
    if (!pieces) return fail(pieces.error().within(flags.model));
    Result<std::optional<Manifest>> found = find_manifest(flags.manifest, model->files().front().path);
    if (!found) return fail(found.error());
    const Manifest* manifest = *found ? &**found : nullptr;
    Result<SliceReport> report = write_slice(*model, *map, manifest, *pieces, flags.out, flags.json, &interruption());
    if (!report) return fail(report.error());
    print_report(flags, *pieces, manifest, *report);
    return 0;
}

Result<int> check(const Flags& flags) {
    bool cutting = !flags.model.empty() || !flags.out.empty() || !flags.layers.empty() || !flags.experts.empty() ||
                   !flags.pieces.empty();
    if (cutting) return fail(ErrorKind::usage, "--check goes with --manifest and --json only");
    Result<std::optional<Manifest>> manifest = find_manifest(flags.manifest, flags.check);
    if (!manifest) return fail(manifest.error());
    Result<std::uint64_t> bytes = check_slice(flags.check, *manifest ? &**manifest : nullptr, flags.json);
    if (!bytes) return fail(bytes.error());
    if (flags.json) {
        print({{"slice", flags.check}, {"ok", true}, {"bytes", *bytes}, {"with_manifest", manifest->has_value()}});
    } else {
        fmt::print("{}: {} of slabs are what {}\n", flags.check, human_bytes(*bytes),
                   *manifest ? "the manifest says" : "its own digests say");
    }
    return 0;
}

}  // namespace

void add_slice(CLI::App& app, Action& action) {
    auto flags = std::make_shared<Flags>();
    CLI::App* command = app.add_subcommand("slice", kDescription);
    command->footer(kFooter);
    command->add_option("MODEL", flags->model, "The GGUF model to cut from; of a split one, any of its files");
    command->add_option("--layers", flags->layers, "Layers, such as 0-3,7 (repeatable)")->allow_extra_args(false);
    command->add_option("--experts", flags->experts, "Experts of these layers, such as 0-63 (repeatable)")
        ->allow_extra_args(false);
    command->add_option("--piece", flags->pieces, "LAYERS:EXPERTS, such as 0-3:0-63 (repeatable)")
        ->allow_extra_args(false);
    command->add_option("-o,--out", flags->out, "The slice to write");
    command->add_option("--manifest", flags->manifest, "The model's manifest (default: the one beside MODEL, if any)");
    command->add_option("--check", flags->check, "Re-read FILE and compare every slab with its digest")
        ->type_name("FILE");
    command->add_flag("--json", flags->json, "Print the result as JSON, and no progress");
    command->callback([flags, &action] {
        action = [flags] {
            return flags->check.empty() ? interruptibly([flags] { return cut(*flags); }) : check(*flags);
        };
    });
}

}  // namespace kvasir::cli
