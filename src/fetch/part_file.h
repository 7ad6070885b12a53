// The slice while it is being downloaded: "<out>.part" beside where it will be, and its journal.
#pragma once

#include <filesystem>

#include "fetch/journal.h"
#include "fetch/plan.h"

namespace kvasir::fetch {

class PartFile {
  public:
    // Locks, makes or reopens it; header and padding are in place then. What is already there may be taken from
    // arrived(). With `adopt`, a damaged file at `out` becomes the part file, unless there is one. ErrorKind::io when
    // the disk has no room for the whole; ErrorKind::unavailable when another process downloads to the same place.
    static Result<PartFile> open(const std::filesystem::path& out, const FetchPlan& plan, bool adopt);

    const Arrived& arrived() const { return journal_.arrived(); }
    const File& file() const { return file_; }
    const std::filesystem::path& path() const { return path_; }

    // Thread-safe among themselves, for different bytes.
    Status write(std::uint64_t offset, ByteSpan bytes) const;
    // Not thread-safe: so many bytes of the slab at `target` are in the file.
    Status note(std::uint64_t target, std::uint64_t bytes) { return journal_.append(target, bytes); }

    // Deletes both files: there is nothing in them.
    void discard();
    // Synced, checked to be a slice, renamed to `out`; the journal goes.
    Status commit();

  private:
    Status prepare(const FetchPlan& plan, bool fresh);

    std::filesystem::path out_;
    std::filesystem::path path_;
    Journal journal_;
    File file_;
};

// Where the two files are.
std::filesystem::path part_path(const std::filesystem::path& out);
std::filesystem::path journal_path(const std::filesystem::path& out);

}  // namespace kvasir::fetch
