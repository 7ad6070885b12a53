#include "backbone/openmp_policy.h"

#include <unistd.h>

#include <array>
#include <cstdlib>

namespace kvasir {
namespace {

// Some 20 us: longer than the gap between two operations of a graph, much shorter than a time slice. libgomp's own
// choice spins for milliseconds, which takes the processor from workers on the same machine.
constexpr const char* kSpinCount = "20000";

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
