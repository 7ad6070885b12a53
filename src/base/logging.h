// Logging of programs whose standard output is their result: spdlog's default writes there too.
#pragma once

namespace kvasir {

// Warnings and errors go to stderr, all else is dropped.
void log_to_stderr();

}  // namespace kvasir
