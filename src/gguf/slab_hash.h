// Hashes many byte ranges of files on several threads: what publishing, slicing and checking have in common.
#pragma once

#include <atomic>
#include <functional>
#include <span>
#include <vector>

#include "base/files.h"
#include "base/progress.h"
#include "base/sha256.h"

namespace kvasir {

struct HashJob {
    const File* file = nullptr;
    const std::filesystem::path* path = nullptr;  // of `file`, for messages
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
};

// Called once per finished job, from one thread at a time, in no particular order; an error ends the whole run.
using HashSink = std::function<Status(std::size_t job, const Digest& digest)>;

struct HashStats {
    std::uint64_t bytes = 0;
    double cpu_seconds = 0;  // of all threads together
};

// Hashes `jobs` (best in file order: reading is then sequential) on `threads` threads, at least one. `progress` is
// advanced in bytes. `cancel`, when set by anybody, ends the run with ErrorKind::unavailable.
Result<HashStats> hash_all(std::span<const HashJob> jobs, int threads, Progress& progress, const HashSink& sink,
                           const std::atomic<bool>* cancel = nullptr);

// All cores that this process may use.
int default_threads();

}  // namespace kvasir
