#include "backbone/memory_budget.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <string_view>

namespace kvasir {
namespace {

constexpr std::uint64_t kNoLimit = std::numeric_limits<std::uint64_t>::max();

// The number in a file such as memory.max; "max", or nothing readable, is no limit.
std::uint64_t read_limit(const std::filesystem::path& path) {
    std::ifstream file(path);
    std::uint64_t limit = kNoLimit;
    return file >> limit ? limit : kNoLimit;
}

// The least limit of the cgroup `group` ("/a/b") and its ancestors, under a hierarchy mounted at `mount`.
std::uint64_t least_limit(const std::filesystem::path& mount, std::string_view group, const char* file) {
    std::filesystem::path relative = std::filesystem::path(group).relative_path();
    std::uint64_t least = kNoLimit;
    for (;;) {
        least = std::min(least, read_limit(mount / relative / file));
        if (relative.empty()) return least;
        relative = relative.parent_path();
    }
}

std::uint64_t cgroup_limit() {
    std::uint64_t least = kNoLimit;
    std::ifstream groups("/proc/self/cgroup");
    // "4:memory:/some/group" (v1), "0::/some/group" (v2)
    for (std::string line; std::getline(groups, line);) {
        std::size_t first = line.find(':');
        std::size_t second = line.find(':', first + 1);
        if (second == std::string::npos) continue;
        std::string controllers = line.substr(first + 1, second - first - 1);
        std::string group = line.substr(second + 1);
        if (controllers == "memory") {
            least = std::min(least, least_limit("/sys/fs/cgroup/memory", group, "memory.limit_in_bytes"));
        } else if (controllers.empty()) {
            least = std::min(least, least_limit("/sys/fs/cgroup", group, "memory.max"));
        }
    }
    return least;
}

}  // namespace

std::uint64_t memory_limit() {
    long pages = sysconf(_SC_PHYS_PAGES);
    long page = sysconf(_SC_PAGESIZE);
    std::uint64_t machine =
        pages > 0 && page > 0 ? static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(page) : kNoLimit;
    return std::min(machine, cgroup_limit());
}

}  // namespace kvasir
