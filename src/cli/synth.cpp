#include "synth/synth.h"

#include <fmt/format.h>

#include <memory>

#include "base/interrupt.h"
#include "base/units.h"
#include "cli/command.h"

namespace kvasir::cli {
namespace {

constexpr const char* kFooter =
    "Examples:\n"
    "  kvasir synth --list\n"
    "  kvasir synth --preset tiny-qwen3moe -o tiny.gguf\n"
    "  kvasir synth --preset qwen3.5-122b --header-only -o header.gguf     to inspect, in no space\n"
    "  kvasir synth --architecture qwen3moe --layers 8 --experts 64 --type Q4_K --hidden 1024 --ff 512 -o big.gguf";

// Flags that replace one field of the preset; unset ones leave it alone.
struct Flags {
    std::string preset;
    std::string out;
    bool list = false;
    SynthOptions options;
    std::vector<std::function<void(SynthSpec&)>> changes;
};

template <class T>
void add_field(CLI::App& command, const std::shared_ptr<Flags>& flags, const std::string& name, T SynthSpec::*field,
               const std::string& help) {
    command
        .add_option_function<T>(
            name, [flags, field](const T& value) { flags->changes.push_back([=](SynthSpec& s) { s.*field = value; }); },
            help)
        ->group("Geometry (replaces the preset's)");
}

void add_fields(CLI::App& command, const std::shared_ptr<Flags>& flags) {
    add_field(command, flags, "--architecture", &SynthSpec::architecture, "llama.cpp's name, such as qwen3moe");
    add_field(command, flags, "--name", &SynthSpec::name, "The model's name");
    add_field(command, flags, "--layers", &SynthSpec::layers, "Decoder blocks");
    add_field(command, flags, "--mtp-layers", &SynthSpec::mtp_layers, "Multi-token-prediction blocks: 0 or 1");
    add_field(command, flags, "--dense-layers", &SynthSpec::dense_layers, "Leading blocks without experts");
    add_field(command, flags, "--moe-every", &SynthSpec::moe_every, "Experts in every n-th layer only");
    add_field(command, flags, "--experts", &SynthSpec::experts, "Experts per layer");
    add_field(command, flags, "--used", &SynthSpec::used, "Experts per token");
    add_field(command, flags, "--groups", &SynthSpec::groups, "Expert groups of the router");
    add_field(command, flags, "--groups-used", &SynthSpec::groups_used, "Expert groups per token");
    add_field(command, flags, "--hidden", &SynthSpec::hidden, "Width of the residual stream");
    add_field(command, flags, "--ff", &SynthSpec::ff, "Inner width of one expert");
    add_field(command, flags, "--shared-ff", &SynthSpec::shared_ff, "Inner width of the shared expert");
    add_field(command, flags, "--dense-ff", &SynthSpec::dense_ff, "Inner width of dense layers");
    add_field(command, flags, "--heads", &SynthSpec::heads, "Attention heads");
    add_field(command, flags, "--kv-heads", &SynthSpec::kv_heads, "Key/value heads");
    add_field(command, flags, "--head-dim", &SynthSpec::head_dim, "Width of a head");
    add_field(command, flags, "--linear-key-heads", &SynthSpec::linear_key_heads, "Key heads of Gated DeltaNet");
    add_field(command, flags, "--linear-value-heads", &SynthSpec::linear_value_heads, "Value heads of Gated DeltaNet");
    add_field(command, flags, "--state-size", &SynthSpec::state_size, "Recurrent state's width");
    add_field(command, flags, "--vocab", &SynthSpec::vocab, "Tokens, at least 260");
    add_field(command, flags, "--context", &SynthSpec::context, "Context length");
    add_field(command, flags, "--type", &SynthSpec::type, "Type of the experts' gate and up, such as Q4_K");
    add_field(command, flags, "--down-type", &SynthSpec::down_type, "Type of the experts' down");
    add_field(command, flags, "--down-every", &SynthSpec::down_every, "Use it in every n-th layer only");
    add_field(command, flags, "--dense-type", &SynthSpec::dense_type, "Type of all other matrices");
    add_field(command, flags, "--embedding-type", &SynthSpec::embedding_type, "Type of the token embedding");
    add_field(command, flags, "--output-type", &SynthSpec::output_type, "Type of the output matrix");
    add_field(command, flags, "--fused-gate-up", &SynthSpec::fused_gate_up, "One ffn_gate_up_exps tensor (true/false)");
    add_field(command, flags, "--expert-scales", &SynthSpec::expert_scales, "One scale per expert (true/false)");
    add_field(command, flags, "--clamp", &SynthSpec::clamp, "Limit of a clamped SwiGLU");
    add_field(command, flags, "--seed", &SynthSpec::seed, "Another seed, other weights");
}

int list_presets() {
    for (const std::string& name : preset_names())
        fmt::print("{:<26} {}\n", name, preset_description(name));
    return 0;
}

Result<int> run(const Flags& flags) {
    if (flags.list) return list_presets();
    if (flags.out.empty()) return fail(ErrorKind::usage, "-o FILE is missing: where to write the model");
    SynthSpec spec;
    if (!flags.preset.empty()) {
        Result<SynthSpec> known = preset(flags.preset);
        if (!known) return fail(known.error());
        spec = *known;
    }
    for (const auto& change : flags.changes)
        change(spec);
    if (spec.architecture.empty()) return fail(ErrorKind::usage, "name a --preset or an --architecture");
    Result<SynthReport> report = synthesize(spec, flags.out, flags.options);
    if (!report) return fail(report.error());
    for (const auto& file : report->files)
        fmt::print("{}\n", file.string());
    fmt::print("{} written in {} ({}/s)", human_bytes(report->bytes), human_seconds(report->seconds),
               human_bytes(static_cast<std::uint64_t>(static_cast<double>(report->bytes) / report->seconds)));
    if (spec.header_only) fmt::print(", the header of a model of {}", human_bytes(report->model_bytes));
    fmt::print("\n");
    return 0;
}

}  // namespace

void add_synth(CLI::App& app, Action& action) {
    CLI::App* command = app.add_subcommand("synth", "Make a random-weight MoE model for tests and benchmarks");
    auto flags = std::make_shared<Flags>();
    flags->options.quiet = false;
    command->footer(kFooter);
    flags->options.cancel = &interruption();
    command->add_option("-o,--output", flags->out, "The GGUF file to write");
    command->add_option("--preset", flags->preset, "A named geometry (see --list)");
    command->add_flag("--list", flags->list, "List the presets");
    command
        ->add_option("--threads", flags->options.threads,
                     "Making the weights (default: all cores); the bytes do not depend on it")
        ->check(CLI::Range(1, 1024));
    command->add_option("--splits", flags->options.splits, "Write N files, OUT-00001-of-0000N.gguf");
    auto set_header_only = [flags](bool value) {
        flags->changes.push_back([value](SynthSpec& s) { s.header_only = value; });
    };
    command->add_flag_callback(
        "--header-only", [=] { set_header_only(true); }, "Metadata and tensor infos, no data");
    command->add_flag_callback(
        "--with-data", [=] { set_header_only(false); }, "Data even where a preset has none");
    command->add_flag("--quiet", flags->options.quiet, "No progress");
    add_fields(*command, flags);
    command->callback(
        [flags, &action] { action = [flags] { return interruptibly([flags] { return run(*flags); }); }; });
}

}  // namespace kvasir::cli
