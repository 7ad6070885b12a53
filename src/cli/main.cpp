#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <system_error>
#include <vector>

#include "backbone/openmp_policy.h"
#include "base/bus_error.h"
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
    "  kvasir hub --publish model.gguf              or let workers get their parts by HTTP (kvasir fetch)\n"
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

// What is wrong with the command line, and whose --help says how it should be.
kvasir::Error usage_error(CLI::App& app, const std::string& what) {
    std::string help = app.get_name();
    const CLI::App* chosen = &app;
    while (!chosen->get_subcommands().empty()) {
        chosen = chosen->get_subcommands().front();
        help += " " + chosen->get_name();
    }
    const std::vector<std::string> unknown = app.remaining(true);
    const bool missing = chosen->get_require_subcommand_min() > 0;
    if (missing && unknown.empty())
        return {kvasir::ErrorKind::usage, fmt::format("say what to do (see {} --help)", help)};
    if (missing) return {kvasir::ErrorKind::usage, fmt::format("unknown: '{}' (see {} --help)", unknown[0], help)};
    return {kvasir::ErrorKind::usage, fmt::format("{} (see {} --help)", what, help)};
}

// A result that did not reach where it was sent is none.
int finish(int code) {
    if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
    return report({kvasir::ErrorKind::io, fmt::format("cannot write the result: {}", std::strerror(errno))});
}

int run(int argc, char** argv) {
    using namespace kvasir;
    reexec_with_openmp_policy(argv);
    select_exact_kernels();
    log_to_stderr();
    end_at_once_on_signals();
    report_bus_errors();
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
    cli::add_hub(app, action);
    cli::add_fetch(app, action);
    cli::add_inspect(app, action);
    cli::add_verify(app, action);
    cli::add_audit(app, action);
    cli::add_bench(app, action);
    cli::add_synth(app, action);
    cli::add_simulate(app, action);
    cli::add_identity(app, action);
    try {
        if (argc > 1 && argv[1][0] != '-' && !knows(app, argv[1])) {
            return report({ErrorKind::usage, fmt::format("unknown command '{}' (see kvasir --help)", argv[1])});
        }
        app.parse(argc, argv);
        Result<int> code = action();
        return code ? finish(*code) : report(code.error());
    } catch (const CLI::ParseError& error) {
        if (error.get_exit_code() == 0) return app.exit(error);
        return report(usage_error(app, error.what()));
    } catch (const std::system_error& error) {  // fmt's, when it cannot write
        return report({ErrorKind::io, error.what()});
    } catch (const std::exception& error) {
        return report({ErrorKind::internal, fmt::format("unexpected: {}", error.what())});
    }
}

}  // namespace

int main(int argc, char** argv) {
    try {
        return run(argc, argv);
    } catch (...) {  // not even the error could be said
        return kvasir::exit_code(kvasir::ErrorKind::internal);
    }
}
