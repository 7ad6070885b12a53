// --arithmetic, where experts are computed.
#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <string>

#include "expert/arithmetic.h"

namespace kvasir::cli {

// `into` holds the default.
inline void add_arithmetic_option(CLI::App& command, Arithmetic& into) {
    std::map<std::string, Arithmetic> names;
    for (Arithmetic arithmetic : known_arithmetics())
        names.emplace(short_name(arithmetic), arithmetic);
    command
        .add_option("--arithmetic", into,
                    "portable: the same bits on every device; ggml-cpu: stock llama.cpp's bits on this machine")
        ->type_name("NAME")
        ->default_str(std::string(short_name(into)))
        ->transform(CLI::CheckedTransformer(names).description(""));
}

}  // namespace kvasir::cli
