// What `kvasir serve` hands to llama-server, checked before minutes go into loading a model.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"

namespace kvasir::cli {

// llama-server's whole command line for a model: what Kvasir asks of it, then the user's own options.
std::vector<std::string> server_command_line(const std::filesystem::path& model,
                                             const std::vector<std::string>& options);

// The arguments as main() gets them; they point into `arguments`.
std::vector<char*> argv_of(std::vector<std::string>& arguments);

// The options are llama-server's, name no second model, and its port is free. Errors: ErrorKind::usage (llama.cpp says
// on stderr what it does not understand), ErrorKind::unavailable. Ends the process where --help or --version is among
// the options.
Status check_server_options(std::vector<std::string> options);

}  // namespace kvasir::cli
