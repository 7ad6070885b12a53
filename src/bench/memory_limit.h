// A memory cgroup of our own: what a process inside may hold, page cache included.
#pragma once

#include <cstdint>
#include <filesystem>

#include "base/result.h"

namespace kvasir {

// Removed on destruction, when its processes have ended.
class MemoryLimit {
  public:
    // ErrorKind::unsupported, saying why, where this process may not make one (cgroup v1 or v2, root mostly).
    static Result<MemoryLimit> create(std::uint64_t bytes);
    ~MemoryLimit();
    MemoryLimit(MemoryLimit&& other) noexcept;
    MemoryLimit& operator=(MemoryLimit&&) = delete;

    // For join_memory_limit in the child.
    const std::filesystem::path& directory() const { return directory_; }

  private:
    explicit MemoryLimit(std::filesystem::path directory) : directory_(std::move(directory)) {}
    std::filesystem::path directory_;
};

// Puts the calling process under the limit.
Status join_memory_limit(const std::filesystem::path& directory);

// Drops a file's clean pages from the page cache, so that reading it again is reading from disk (and is charged to the
// reader's cgroup).
Status drop_from_page_cache(const std::filesystem::path& file);

}  // namespace kvasir
