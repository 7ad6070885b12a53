// What the files named on a command line must be, checked before anything is made of them.
#pragma once

#include <filesystem>

#include "base/result.h"

namespace kvasir::cli {

// The file of a model that llama.cpp loads: the one named, of a split model the first. A slice is refused, with advice
// (ErrorKind::unsupported): only a worker can use one.
Result<std::filesystem::path> whole_model(const std::filesystem::path& named);

// A key is made where there is none, but not in a directory that is not there: its name was mistyped. (The default
// key's directory is made.) Empty stands for the default. ErrorKind::usage.
Status check_key_path(const std::filesystem::path& named);

}  // namespace kvasir::cli
