#include "bench/memory_limit.h"

#include <fcntl.h>
#include <unistd.h>

#include <fstream>
#include <utility>

#include "base/files.h"

namespace kvasir {
namespace {

bool write_value(const std::filesystem::path& file, const std::string& value) {
    std::ofstream stream(file);
    stream << value << std::flush;
    return stream.good();
}

}  // namespace

Result<MemoryLimit> MemoryLimit::create(std::uint64_t bytes) {
    const std::filesystem::path root = "/sys/fs/cgroup";
    struct Version {
        std::filesystem::path parent;
        const char* limit;
    };
    for (const Version& version : {Version{root / "memory", "memory.limit_in_bytes"}, Version{root, "memory.max"}}) {
        if (!std::filesystem::exists(version.parent / "cgroup.procs")) continue;
        std::filesystem::path directory = version.parent / fmt::format("kvasir-{}", ::getpid());
        std::error_code refused;
        std::filesystem::create_directory(directory, refused);
        if (refused) continue;
        MemoryLimit limit(directory);
        if (write_value(directory / version.limit, std::to_string(bytes))) return limit;
    }
    return fail(ErrorKind::unsupported, "no memory cgroup can be made here (it takes root and a writable {})",
                root.string());
}

MemoryLimit::~MemoryLimit() {
    if (!directory_.empty()) ::rmdir(directory_.c_str());
}
MemoryLimit::MemoryLimit(MemoryLimit&& other) noexcept : directory_(std::exchange(other.directory_, {})) {}

Status join_memory_limit(const std::filesystem::path& directory) {
    if (write_value(directory / "cgroup.procs", std::to_string(::getpid()))) return {};
    return fail(ErrorKind::unsupported, "{}: cannot join this cgroup", directory.string());
}

Status drop_from_page_cache(const std::filesystem::path& path) {
    Result<File> file = File::open(path);
    if (!file) return fail(file.error());
    // Only clean pages can be dropped.
    if (::fdatasync(file->descriptor()) != 0 || ::posix_fadvise(file->descriptor(), 0, 0, POSIX_FADV_DONTNEED) != 0) {
        return fail(ErrorKind::io, "{}: cannot drop it from the page cache", path.string());
    }
    return {};
}

}  // namespace kvasir
