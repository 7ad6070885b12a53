// Logging of programs whose standard output is their result: spdlog's default writes there too.
#pragma once

#include <cstdint>

namespace kvasir {

enum class LogLevel : std::uint8_t { errors, warnings };

// What is at least as bad as `level` goes to stderr, all else is dropped.
void log_to_stderr(LogLevel level = LogLevel::warnings);

}  // namespace kvasir
