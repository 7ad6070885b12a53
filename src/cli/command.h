// The shape of a subcommand: each src/cli/<name>.cpp defines one `add_<name>`, called from main.cpp.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "base/result.h"

namespace kvasir::cli {

// What the chosen subcommand does once all flags are parsed; returns the process's exit code, or the error to print
// ("kvasir: error: …", exit_code(kind)).
using Action = std::function<Result<int>()>;

// Adds a subcommand to `app`; when it is parsed it stores what to do in `action`.
void add_inspect(CLI::App& app, Action& action);
void add_publish(CLI::App& app, Action& action);
void add_slice(CLI::App& app, Action& action);
void add_identity(CLI::App& app, Action& action);
void add_worker(CLI::App& app, Action& action);
void add_serve(CLI::App& app, Action& action);
void add_verify(CLI::App& app, Action& action);
void add_synth(CLI::App& app, Action& action);
void add_demo(CLI::App& app, Action& action);
void add_bench(CLI::App& app, Action& action);

}  // namespace kvasir::cli
