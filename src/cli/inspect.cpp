// `kvasir inspect`: what a model is made of and what of it can be sharded, from its header alone.
//
// The keys of --json are stable:
//   architecture, name, files[] {path, bytes}, header_only (no weights in the file), sharded (has routed experts)
//   blocks, moe_layers, hidden, expert_ff, experts_per_layer, experts_used (0: the header does not say)
//   experts, expert_sizes[] {bytes, experts}, model_bytes, expert_bytes, expert_share (0 to 1)
//   layers[] {layers ("0-3,7"), count, experts, hidden, ff, recipe, recipe_known, expert_bytes,
//             tensors[] {role, type, slab_bytes}}: layers that are alike share one entry
//   types[] {tensor, type, tensors, bytes, routed}
//   budget (with --budget) {bytes, experts_at_least, experts_at_most, expert_share, model_share, workers}
//   slice (of a slice) {model_id (or null), pieces[] {layer, first, count, bytes}}
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/units.h"
#include "cli/command.h"
#include "gguf/slice.h"
#include "gguf/slice_contents.h"
#include "gguf/summary.h"

namespace kvasir::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Flags {
    std::string model;
    std::string budget;
    bool json = false;
};

// Everything that is printed, in either form.
struct Report {
    GgufModel model;
    ExpertMap map;
    Summary summary;
    std::optional<Slice> slice;
    std::optional<std::uint64_t> budget;
    BudgetFit fit;
};

// Text from a file, safe for a terminal.
std::string printable(std::string text) {
    for (char& c : text) {
        const auto byte = static_cast<unsigned char>(c);
        if (byte < 0x20 || byte == 0x7f) c = '?';
    }
    return text;
}

double share(std::uint64_t part, std::uint64_t whole) {
    return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

std::string percent(std::uint64_t part, std::uint64_t whole) {
    return fmt::format("{:.1f} %", 100 * share(part, whole));
}

bool header_only(const GgufModel& model) {
    return model.integer("kvasir.header_only") == 1;
}

// A slice as a map of its pieces, each one a layer of its own.
ExpertMap slice_map(const Slice& slice) {
    ExpertMap map;
    map.architecture = slice.architecture;
    map.name = slice.name;
    for (const SliceLayer& piece : slice.layers) {
        map.layers.push_back(piece.layer);
        map.expert_bytes += piece.layer.expert_bytes() * piece.layer.experts;
    }
    for (const TensorInfo& tensor : slice.model.tensors())
        map.model_bytes += tensor.bytes;
    if (!slice.layers.empty()) map.hidden = slice.layers[0].layer.hidden;
    return map;
}

Result<Report> examine(const Flags& flags) {
    Report report;
    if (!flags.budget.empty()) {
        Result<std::uint64_t> budget = parse_bytes(flags.budget);
        if (!budget) return fail(budget.error().within("--budget"));
        report.budget = *budget;
    }
    Result<GgufModel> model = GgufModel::open(flags.model, GgufLength::any);
    if (model && !model->complete() && !header_only(*model)) {
        model = GgufModel::open(flags.model, GgufLength::complete);  // for the error: where it ends
    }
    if (!model) return fail(model.error());
    report.model = std::move(*model);
    if (is_slice(report.model)) {
        Result<Slice> slice = open_slice(flags.model);
        if (!slice) return fail(slice.error());
        report.map = slice_map(*slice);
        report.slice = std::move(*slice);
    } else {
        Result<ExpertMap> map = map_experts(report.model);
        if (!map) return fail(map.error().within(flags.model));
        report.map = std::move(*map);
    }
    report.summary = summarize(report.model, report.map.layers);
    if (report.budget) report.fit = fit_budget(report.summary, *report.budget);
    return report;
}

std::vector<Piece> pieces_of(const Slice& slice) {
    std::vector<Piece> pieces;
    pieces.reserve(slice.layers.size());
    for (const SliceLayer& layer : slice.layers)
        pieces.push_back(layer.piece);
    return pieces;
}

std::uint64_t file_bytes(const GgufModel& model) {
    std::uint64_t bytes = 0;
    for (const ModelFile& file : model.files())
        bytes += file.size;
    return bytes;
}

std::uint32_t most_experts(const ExpertMap& map) {
    std::uint32_t most = 0;
    for (const ExpertLayer& layer : map.layers)
        most = std::max(most, layer.experts);
    return most;
}

std::uint64_t largest_ff(const ExpertMap& map) {
    std::uint64_t largest = 0;
    for (const ExpertLayer& layer : map.layers)
        largest = std::max(largest, layer.ff);
    return largest;
}

// Layers, not pieces: a slice may hold several pieces of one layer.
std::uint64_t layer_count(const ExpertMap& map) {
    std::uint64_t count = 0;
    const ExpertLayer* previous = nullptr;
    for (const ExpertLayer& layer : map.layers) {
        if (previous == nullptr || previous->layer != layer.layer) ++count;
        previous = &layer;
    }
    return count;
}

// ---- JSON

Json tensors_json(const ExpertLayer& layer) {
    Json tensors = Json::array();
    for (const ExpertTensor& tensor : layer.tensors) {
        tensors.push_back({{"role", role_name(tensor.role)},
                           {"type", type_name(tensor.info.type)},
                           {"slab_bytes", tensor.slab_bytes}});
    }
    return tensors;
}

Json group_json(const LayerGroup& group) {
    const ExpertLayer& layer = group.example;
    return {{"layers", describe(std::span<const Range>(group.layers))},
            {"count", group.layer_count},
            {"experts", layer.experts},
            {"hidden", layer.hidden},
            {"ff", layer.ff},
            {"recipe", describe(layer.recipe)},
            {"recipe_known", layer.recipe.activation != Activation::unknown},
            {"expert_bytes", layer.expert_bytes()},
            {"tensors", tensors_json(layer)}};
}

Json budget_json(const Report& report) {
    const BudgetFit& fit = report.fit;
    return {{"bytes", *report.budget},
            {"experts_at_least", fit.experts_at_least},
            {"experts_at_most", fit.experts_at_most},
            {"expert_share", share(fit.bytes_at_most, report.map.expert_bytes)},
            {"model_share", share(fit.bytes_at_most, report.map.model_bytes)},
            {"workers", fit.workers}};
}

Json slice_json(const Slice& slice) {
    Json pieces = Json::array();
    for (const SliceLayer& layer : slice.layers) {
        pieces.push_back({{"layer", layer.piece.layer},
                          {"first", layer.piece.first},
                          {"count", layer.piece.count},
                          {"bytes", layer.layer.expert_bytes() * layer.piece.count}});
    }
    Json json;
    json["model_id"] = slice.model_id ? Json(to_hex(*slice.model_id)) : Json();
    json["pieces"] = std::move(pieces);
    return json;
}

void print_json(const Report& report) {
    const ExpertMap& map = report.map;
    Json json;
    json["architecture"] = map.architecture;
    json["name"] = map.name;
    json["files"] = Json::array();
    for (const ModelFile& file : report.model.files()) {
        json["files"].push_back({{"path", file.path.string()}, {"bytes", file.size}});
    }
    json["header_only"] = header_only(report.model);
    json["sharded"] = !map.layers.empty();
    json["blocks"] = map.block_count;
    json["moe_layers"] = layer_count(map);
    json["hidden"] = map.hidden;
    json["expert_ff"] = largest_ff(map);
    json["experts_per_layer"] = most_experts(map);
    json["experts_used"] = map.experts_used;
    json["experts"] = map.expert_count();
    json["expert_sizes"] = Json::array();
    for (const SlabSize& size : report.summary.expert_sizes) {
        json["expert_sizes"].push_back({{"bytes", size.bytes}, {"experts", size.experts}});
    }
    json["model_bytes"] = map.model_bytes;
    json["expert_bytes"] = map.expert_bytes;
    json["expert_share"] = share(map.expert_bytes, map.model_bytes);
    json["layers"] = Json::array();
    for (const LayerGroup& group : report.summary.groups)
        json["layers"].push_back(group_json(group));
    json["types"] = Json::array();
    for (const TypeCount& count : report.summary.types) {
        json["types"].push_back({{"tensor", count.tensor},
                                 {"type", type_name(count.type)},
                                 {"tensors", count.tensors},
                                 {"bytes", count.bytes},
                                 {"routed", count.routed}});
    }
    if (report.budget) json["budget"] = budget_json(report);
    if (report.slice) json["slice"] = slice_json(*report.slice);
    fmt::print("{}\n", json.dump(2, ' ', false, Json::error_handler_t::replace));
}

// ---- Text

void print_line(std::string_view label, const std::string& text) {
    fmt::print("  {:<13} {}\n", label, text);
}

void print_head(const Report& report) {
    const ExpertMap& map = report.map;
    const std::vector<ModelFile>& files = report.model.files();
    fmt::print("{}{}\n", report.slice ? "Slice of " : "", printable(map.name));
    print_line("architecture", map.architecture.empty() ? "not given" : printable(map.architecture));
    print_line("file", printable(files[0].path.string()) +
                           (files.size() > 1 ? fmt::format(" and {} more splits", files.size() - 1) : "") +
                           (header_only(report.model) ? ", a header without weights"
                                                      : ", " + human_bytes(file_bytes(report.model))));
    if (report.slice) {
        print_line("model id",
                   report.slice->model_id ? to_hex(*report.slice->model_id) : "none: it was cut without a manifest");
        print_line("pieces", describe(std::span<const Piece>(pieces_of(*report.slice))));
    }
}

void print_experts(const Report& report) {
    const ExpertMap& map = report.map;
    std::string geometry = report.slice ? "" : fmt::format("{} layers, ", map.block_count);
    geometry += fmt::format("{} with routed experts, hidden {}, expert ff {}, {} experts per layer", layer_count(map),
                            map.hidden, largest_ff(map), most_experts(map));
    if (map.experts_used > 0) geometry += fmt::format(", top-{}", map.experts_used);
    if (report.slice) {
        geometry = fmt::format("{} layers, hidden {}, expert ff {}", layer_count(map), map.hidden, largest_ff(map));
    }
    print_line("geometry", geometry);
    std::vector<std::string> sizes;
    for (const SlabSize& size : report.summary.expert_sizes) {
        const bool only = report.summary.expert_sizes.size() == 1;
        sizes.push_back(fmt::format("{}{} B ({})", only ? "" : human_count(size.experts) + " × ",
                                    human_count(size.bytes), human_bytes(size.bytes)));
    }
    const bool mixed = sizes.size() > 1;
    print_line("experts",
               fmt::format("{}{}{}", human_count(map.expert_count()), mixed ? ": " : " × ", fmt::join(sizes, " + ")));
    print_line("share", fmt::format("{} of {} are routed experts: {}", human_bytes(map.expert_bytes),
                                    human_bytes(map.model_bytes), percent(map.expert_bytes, map.model_bytes)));
}

std::string tensor_list(const ExpertLayer& layer) {
    std::vector<std::string> parts;
    for (const ExpertTensor& tensor : layer.tensors) {
        parts.push_back(fmt::format("{} {}", role_name(tensor.role), type_name(tensor.info.type)));
    }
    return fmt::format("{}", fmt::join(parts, ", "));
}

// "SwiGLU; gate Q4_K, up Q4_K, down Q6_K"
std::string recipe_and_tensors(const ExpertLayer& layer) {
    return fmt::format("{}; {}", describe(layer.recipe), tensor_list(layer));
}

void print_groups(const Report& report) {
    std::size_t width = 16;
    bool unknown = false;
    for (const LayerGroup& group : report.summary.groups) {
        width = std::max(width, recipe_and_tensors(group.example).size());
        unknown = unknown || group.example.recipe.activation == Activation::unknown;
    }
    const char* what = report.slice ? "pieces" : "layers";
    fmt::print("\n{}  experts      bytes each  {:<{}}  which\n", what, "recipe; tensors", width);
    for (const LayerGroup& group : report.summary.groups) {
        const ExpertLayer& layer = group.example;
        fmt::print("{:>6}  {:>7}  {:>14}  {:<{}}  {}\n", group.layer_count, layer.experts,
                   human_count(layer.expert_bytes()), recipe_and_tensors(layer), width,
                   describe(std::span<const Range>(group.layers)));
    }
    if (unknown) {
        fmt::print(
            "The header does not tell the activation of architecture '{}': the backbone reads it off llama.cpp's "
            "graph\n"
            "and refuses what it cannot express.\n",
            printable(report.map.architecture));
    }
}

void print_types(const Report& report) {
    std::size_t width = 6;
    for (const TypeCount& count : report.summary.types)
        width = std::max(width, printable(count.tensor).size());
    fmt::print("\n{:<{}}  {:<8} {:>7}  {:>9}\n", "tensor", width, "type", "tensors", "bytes");
    for (const TypeCount& count : report.summary.types) {
        fmt::print("{:<{}}  {:<8} {:>7}  {:>9}{}\n", printable(count.tensor), width, type_name(count.type),
                   count.tensors, human_bytes(count.bytes), count.routed ? "  routed" : "");
    }
}

void print_budget(const Report& report) {
    const BudgetFit& fit = report.fit;
    const ExpertMap& map = report.map;
    const std::string budget = fmt::format("{} ({} B)", human_bytes(*report.budget), human_count(*report.budget));
    if (fit.experts_at_most == 0) {
        fmt::print("\nA budget of {} holds no expert: the smallest has {}.\n", budget,
                   human_bytes(report.summary.expert_sizes.front().bytes));
        return;
    }
    const std::string experts =
        fit.experts_at_least == fit.experts_at_most
            ? human_count(fit.experts_at_most)
            : fmt::format("{} to {}", human_count(fit.experts_at_least), human_count(fit.experts_at_most));
    fmt::print(
        "\nA budget of {} for weights holds {} of {} experts: {} of the experts' bytes, {} of the model's.\n"
        "{} such worker{} every expert once. (A worker needs up to 67 MB besides its weights.)\n",
        budget, experts, human_count(map.expert_count()), percent(fit.bytes_at_most, map.expert_bytes),
        percent(fit.bytes_at_most, map.model_bytes), fit.workers, fit.workers == 1 ? " holds" : "s hold");
}

void print_text(const Report& report) {
    print_head(report);
    if (report.map.layers.empty()) {
        print_line("geometry", fmt::format("{} layers, hidden {}", report.map.block_count, report.map.hidden));
        print_line("experts", "none: this is a dense model, there is nothing to shard");
    } else {
        print_experts(report);
        print_groups(report);
    }
    print_types(report);
    if (report.budget && !report.map.layers.empty()) print_budget(report);
}

}  // namespace

void add_inspect(CLI::App& app, Action& action) {
    CLI::App* command = app.add_subcommand("inspect", "Show what a model is made of and what of it can be sharded");
    auto flags = std::make_shared<Flags>();
    command->add_option("MODEL", flags->model, "A GGUF model (any of its splits) or a slice")->required();
    command->add_option("--budget", flags->budget, "Say what a worker with this memory could hold: 4GiB, 500MB");
    command->add_flag("--json", flags->json, "Print JSON with stable keys");
    command->footer(
        "Only the header is read. Example:\n"
        "  kvasir inspect models/kvasir-tales-q4_k_m.gguf --budget 4MB\n"
        "JSON keys: architecture, name, files, header_only, sharded, blocks, moe_layers, hidden, expert_ff,\n"
        "experts_per_layer, experts_used, experts, expert_sizes, model_bytes, expert_bytes, expert_share, layers,\n"
        "types; budget (with --budget); slice (of a slice).");
    command->callback([flags, &action] {
        action = [flags]() -> Result<int> {
            Result<Report> report = examine(*flags);
            if (!report) return fail(report.error());
            if (flags->json) {
                print_json(*report);
            } else {
                print_text(*report);
            }
            return 0;
        };
    });
}

}  // namespace kvasir::cli
