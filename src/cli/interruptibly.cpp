#include <fmt/format.h>

#include <cstdio>

#include "base/interrupt.h"
#include "cli/command.h"

namespace kvasir::cli {

Result<int> interruptibly(const Action& work, std::string_view what_remains) {
    end_politely_on_signals();
    Result<int> code = work();
    if (code || !interrupted()) return code;
    fmt::print(stderr, "kvasir: interrupted; {}\n", what_remains);
    return interruption_code();
}

}  // namespace kvasir::cli
