#include <fmt/format.h>

#include <cstdio>
#include <exception>

#include "backbone/openmp_policy.h"
#include "base/interrupt.h"
#include "base/logging.h"
#include "cli/command.h"
#include "expert/engine.h"

namespace {

constexpr const char* kFooter =
    "Start here:\n"
    "  kvasir demo                                  the whole system on this machine, in a minute\n"
    "  kvasir inspect model.gguf                    what can be sharded\n"
    "  kvasir publish model.gguf                    hash it: the manifest and the model id\n"
    "  kvasir slice model.gguf --layers 0-3 --experts 0-63 -o part.gguf\n"
    "  kvasir worker --slice part.gguf --listen :7411 --admit BACKBONE_ID\n"
    "  kvasir serve model.gguf --worker HOST:7411#WORKER_ID\n"
    "Exit codes: 0 done, 1 a comparison failed, 2 wrong use, 3 bad or unsupported input, 4 something is unavailable,\n"
    "70 a bug, 130 and 143 interrupted (128 + the signal's number).";

int report(const kvasir::Error& error) {
    fmt::print(stderr, "kvasir: error: {}\n", error.message);
    return kvasir::exit_code(error.kind);
}

bool knows(CLI::App& app, const char* command) {
    return !app.get_subcommands([command](CLI::App* known) { return known->check_name(command); }).empty();
}

}  // namespace

int main(int argc, char** argv) {
    using namespace kvasir;
    reexec_with_openmp_policy(argv);
    select_exact_kernels();
    log_to_stderr();
    end_at_once_on_signals();
    CLI::App app("Kvasir: expert-sharded swarm inference for Mixture-of-Experts language models", "kvasir");
    app.footer(kFooter);
    app.set_version_flag("--version", "kvasir " KVASIR_VERSION);
    app.require_subcommand(1);
    app.fallthrough(false);
    cli::Action action;
    cli::add_demo(app, action);
    cli::add_serve(app, action);
    cli::add_worker(app, action);
    cli::add_publish(app, action);
    cli::add_slice(app, action);
    cli::add_inspect(app, action);
    cli::add_verify(app, action);
    cli::add_bench(app, action);
    cli::add_synth(app, action);
    cli::add_identity(app, action);
    try {
        if (argc > 1 && argv[1][0] != '-' && !knows(app, argv[1])) {
            return report({ErrorKind::usage, fmt::format("unknown command '{}' (see kvasir --help)", argv[1])});
        }
        app.parse(argc, argv);
        Result<int> code = action();
        return code ? *code : report(code.error());
    } catch (const CLI::ParseError& error) {
        if (error.get_exit_code() == 0) return app.exit(error);
        return report({ErrorKind::usage, fmt::format("{} (see kvasir --help)", error.what())});
    } catch (const std::exception& error) {
        return report({ErrorKind::internal, fmt::format("unexpected: {}", error.what())});
    }
}
