#include "base/bus_error.h"

#include <unistd.h>

#include <csignal>
#include <string_view>

#include "base/result.h"

namespace kvasir {

namespace {

// Only what may be called from a signal handler.
void on_bus_error(int /*signal*/) {
    constexpr std::string_view kMessage =
        "kvasir: error: a file in use (a model or a slice) has become shorter, or its disk cannot read it; replace "
        "files "
        "by renaming, never by writing into them. Check it with 'kvasir slice --check' or 'kvasir publish'\n";
    (void)!write(STDERR_FILENO, kMessage.data(), kMessage.size());
    _exit(exit_code(ErrorKind::io));
}

}  // namespace

void report_bus_errors() {
    struct sigaction action {};
    action.sa_handler = on_bus_error;
    sigaction(SIGBUS, &action, nullptr);
}

}  // namespace kvasir
