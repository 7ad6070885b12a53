// Whose backbones a worker serves.
#pragma once

#include <filesystem>
#include <set>
#include <span>
#include <string>

#include "base/result.h"
#include "wire/messages.h"

namespace kvasir {

// The node ids among `ids` and in `file` (one per line; blank lines and "#" comments allowed; an empty path: no file).
// Errors name what is not a node id, with its line.
Result<std::set<NodeId>> read_admissions(std::span<const std::string> ids, const std::filesystem::path& file);

}  // namespace kvasir
