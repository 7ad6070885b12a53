#include "synth/synth.h"

#include <fmt/format.h>

#include <memory>

#include "base/interrupt.h"
#include "base/units.h"
#include "cli/command.h"

namespace kvasir::cli {
namespace {

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
    add_field(command, flags, "--name", &SynthSpec::name, "the model's name");
    add_field(command, flags, "--layers", &SynthSpec::layers, "decoder blocks");
    add_field(command, flags, "--mtp-layers", &SynthSpec::mtp_layers, "multi-token-prediction blocks: 0 or 1");
    add_field(command, flags, "--dense-layers", &SynthSpec::dense_layers, "leading blocks without experts");
    add_field(command, flags, "--moe-every", &SynthSpec::moe_every, "experts in every n-th layer only");
    add_field(command, flags, "--experts", &SynthSpec::experts, "experts per layer");
    add_field(command, flags, "--used", &SynthSpec::used, "experts per token");
    add_field(command, flags, "--groups", &SynthSpec::groups, "expert groups of the router");
    add_field(command, flags, "--groups-used", &SynthSpec::groups_used, "expert groups per token");
    add_field(command, flags, "--hidden", &SynthSpec::hidden, "width of the residual stream");
    add_field(command, flags, "--ff", &SynthSpec::ff, "inner width of one expert");
    add_field(command, flags, "--shared-ff", &SynthSpec::shared_ff, "inner width of the shared expert");
    add_field(command, flags, "--dense-ff", &SynthSpec::dense_ff, "inner width of dense layers");
    add_field(command, flags, "--heads", &SynthSpec::heads, "attention heads");
    add_field(command, flags, "--kv-heads", &SynthSpec::kv_heads, "key/value heads");
    add_field(command, flags, "--head-dim", &SynthSpec::head_dim, "width of a head");
    add_field(command, flags, "--linear-key-heads", &SynthSpec::linear_key_heads, "key heads of Gated DeltaNet");
    add_field(command, flags, "--linear-value-heads", &SynthSpec::linear_value_heads, "value heads of Gated DeltaNet");
    add_field(command, flags, "--state-size", &SynthSpec::state_size, "recurrent state's width");
    add_field(command, flags, "--vocab", &SynthSpec::vocab, "tokens, at least 260");
    add_field(command, flags, "--context", &SynthSpec::context, "context length");
    add_field(command, flags, "--type", &SynthSpec::type, "type of the experts' gate and up, such as Q4_K");
    add_field(command, flags, "--down-type", &SynthSpec::down_type, "type of the experts' down");
    add_field(command, flags, "--down-every", &SynthSpec::down_every, "use it in every n-th layer only");
    add_field(command, flags, "--dense-type", &SynthSpec::dense_type, "type of all other matrices");
    add_field(command, flags, "--embedding-type", &SynthSpec::embedding_type, "type of the token embedding");
    add_field(command, flags, "--output-type", &SynthSpec::output_type, "type of the output matrix");
    add_field(command, flags, "--fused-gate-up", &SynthSpec::fused_gate_up, "one ffn_gate_up_exps tensor (true/false)");
    add_field(command, flags, "--expert-scales", &SynthSpec::expert_scales, "one scale per expert (true/false)");
    add_field(command, flags, "--clamp", &SynthSpec::clamp, "limit of a clamped SwiGLU");
    add_field(command, flags, "--seed", &SynthSpec::seed, "another seed, other weights");
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
    flags->options.cancel = &interruption();
    command->add_option("-o,--output", flags->out, "the GGUF file to write");
    command->add_option("--preset", flags->preset, "a named geometry (see --list)");
    command->add_flag("--list", flags->list, "list the presets");
    command->add_option("--threads", flags->options.threads, "default: all; the bytes do not depend on it");
    command->add_option("--splits", flags->options.splits, "write N files, OUT-00001-of-0000N.gguf");
    auto set_header_only = [flags](bool value) {
        flags->changes.push_back([value](SynthSpec& s) { s.header_only = value; });
    };
    command->add_flag_callback(
        "--header-only", [=] { set_header_only(true); }, "metadata and tensor infos, no data");
    command->add_flag_callback(
        "--with-data", [=] { set_header_only(false); }, "data even where a preset has none");
    command->add_flag("--quiet", flags->options.quiet, "no progress");
    add_fields(*command, flags);
    command->callback(
        [flags, &action] { action = [flags] { return interruptibly([flags] { return run(*flags); }); }; });
}

}  // namespace kvasir::cli
