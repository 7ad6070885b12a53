#include "backbone/openmp_policy.h"

#include <unistd.h>

#include <array>
#include <cstdlib>

namespace kvasir {
namespace {

// Long enough for the gap between two operations of a graph, and no longer. Measured with the bundled model on two
// cores, tokens/s when idle and when seven others want the cores: libgomp's own choice (it spins for milliseconds)
// 2140 and 5 to 80; 1000: 2110 and 30 to 70; 500: 1970; 200: 1150 and 90 to 290; no spinning (OMP_WAIT_POLICY=passive):
// 240 and 90 to 550.
constexpr const char* kSpinCount = "1000";

}  // namespace

void reexec_with_openmp_policy(char** argv) {
    if (std::getenv("OMP_WAIT_POLICY") != nullptr || std::getenv("GOMP_SPINCOUNT") != nullptr) return;
    std::array<char, 4096> path{};
    ssize_t length = readlink("/proc/self/exe", path.data(), path.size() - 1);
    if (length <= 0) return;
    setenv("GOMP_SPINCOUNT", kSpinCount, 1);
    execv(path.data(), argv);
}

}  // namespace kvasir
