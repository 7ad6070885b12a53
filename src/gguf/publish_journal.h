// Digests found so far, on disk, so that publishing a large model survives being killed. One fixed-size record per
// slab, each with a check of its own: whatever a crash leaves of the file, only whole records of this very model count.
#pragma once

#include <filesystem>
#include <functional>

#include "base/files.h"
#include "base/sha256.h"

namespace kvasir {

class PublishJournal {
  public:
    // Opens or creates the journal and locks it; ErrorKind::unavailable when another process holds it. `fingerprint`
    // stands for the model's files as they are now: a journal of anything else starts over. Each whole record goes to
    // `restore`; a broken tail is cut off.
    static Result<PublishJournal> open(const std::filesystem::path& path, const Digest& fingerprint,
                                       const std::function<void(std::uint32_t slab, const Digest&)>& restore);

    // Not thread-safe. The record reaches the kernel, not necessarily the disk.
    Status append(std::uint32_t slab, const Digest& digest);

  private:
    Status read_records(const std::function<void(std::uint32_t, const Digest&)>& restore);
    Status start_over();
    Status write_all(ByteSpan bytes);

    std::filesystem::path path_;
    File file_;
    Digest fingerprint_{};
};

}  // namespace kvasir
