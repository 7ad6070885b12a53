// kvasir demo: the whole system on one machine.
#include "demo/demo.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <system_error>
#include <thread>

#include "base/logging.h"
#include "cli/arithmetic_option.h"
#include "cli/command.h"

namespace kvasir::cli {
namespace {

constexpr const char* kBundledModel = "kvasir-tales-q4_k_m.gguf";

constexpr const char* kFooter =
    "It publishes and slices the model in a temporary directory, starts three worker processes with overlapping\n"
    "pieces, lets a backbone write a story with them, kills one of them half-way, and compares every logit and every\n"
    "expert output with those of the backbone alone (in ggml-cpu: of stock llama.cpp). Nothing is left behind, and no\n"
    "network but loopback is used.\n"
    "\n"
    "Examples:\n"
    "  kvasir demo                       the small model that comes with Kvasir; a few seconds\n"
    "  kvasir demo --model other.gguf    any MoE model with a tokenizer; needs twice its size in $TMPDIR\n"
    "  kvasir demo --arithmetic ggml-cpu the swarm's bits are those of stock llama.cpp on this machine\n"
    "Exit codes: 0 everything was identical, 1 something differed.";

struct Flags {
    DemoOptions demo;
    std::string model;
};

Result<std::filesystem::path> bundled_model() {
    std::error_code ignored;
    const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
    const std::array<std::filesystem::path, 4> places{KVASIR_MODELS, program / "../../models",
                                                      program / "../share/kvasir/models", "models"};
    for (const std::filesystem::path& place : places) {
        if (std::filesystem::is_regular_file(place / kBundledModel, ignored)) return place / kBundledModel;
    }
    return fail(ErrorKind::io, "the bundled model {} is not in {}: name one with --model", kBundledModel,
                places[0].string());
}

Result<int> run(Flags flags) {
    log_to_stderr(LogLevel::errors);  // a killed worker is part of the story
    flags.demo.model = flags.model;
    if (flags.model.empty()) {
        Result<std::filesystem::path> found = bundled_model();
        if (!found) return fail(found.error());
        flags.demo.model = *found;
    }
    flags.demo.program = "/proc/self/exe";
    return run_demo(flags.demo);
}

}  // namespace

void add_demo(CLI::App& app, Action& action) {
    auto flags = std::make_shared<Flags>();
    const unsigned cores = std::max(1U, std::thread::hardware_concurrency());
    flags->demo.threads = static_cast<int>(std::clamp(cores, 1U, 4U));
    CLI::App* command =
        app.add_subcommand("demo", "The whole system on this machine: a swarm writes a story, and proves it");
    command->footer(kFooter);
    command->add_option("--model", flags->model, "Another MoE model (GGUF)")->type_name("FILE");
    command->add_option("--tokens", flags->demo.tokens, "Length of the story")
        ->capture_default_str()
        ->check(CLI::Range(2U, 100'000U));
    command->add_option("--seed", flags->demo.seed, "Another story")->capture_default_str();
    command->add_option("--threads", flags->demo.threads, "Computing threads of the backbone")
        ->capture_default_str()
        ->check(CLI::Range(1, 1024));
    add_arithmetic_option(*command, flags->demo.arithmetic);
    command->callback(
        [flags, &action] { action = [flags] { return interruptibly([flags] { return run(*flags); }); }; });
}

}  // namespace kvasir::cli
