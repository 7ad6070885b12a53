// The shape of a subcommand: each src/cli/<name>.cpp defines one `add_<name>`, called from main.cpp.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string_view>

#include "base/result.h"

namespace kvasir::cli {

// What the chosen subcommand does once all flags are parsed; returns the process's exit code, or the error to print
// ("kvasir: error: …", exit_code(kind)).
using Action = std::function<Result<int>()>;

// Runs `work`, which has something to clean up: signals only ask it to end (base/interrupt.h). If one came and the work
// was not done, one line says "interrupted; " and `what_remains`, and the exit code is 128 + the signal's number.
Result<int> interruptibly(const Action& work, std::string_view what_remains = "nothing was left behind");

// Adds a subcommand to `app`; when it is parsed it stores what to do in `action`.
void add_inspect(CLI::App& app, Action& action);
void add_publish(CLI::App& app, Action& action);
void add_slice(CLI::App& app, Action& action);
void add_identity(CLI::App& app, Action& action);
void add_worker(CLI::App& app, Action& action);
void add_serve(CLI::App& app, Action& action);
void add_hub(CLI::App& app, Action& action);
void add_fetch(CLI::App& app, Action& action);
void add_verify(CLI::App& app, Action& action);
void add_synth(CLI::App& app, Action& action);
void add_demo(CLI::App& app, Action& action);
void add_audit(CLI::App& app, Action& action);
void add_bench(CLI::App& app, Action& action);
void add_simulate(CLI::App& app, Action& action);

}  // namespace kvasir::cli
