// How far a download has come, on disk: one fixed-size record for every stretch of bytes written, each with a check of
// its own. Whatever a crash leaves of it, only whole records of this very slice count; and since every slab is hashed
// again before it is used, a journal that lies costs bytes, never correctness.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>

#include "base/files.h"
#include "base/sha256.h"

namespace kvasir::fetch {

// Bytes that are there from the beginning of a slab, by the slab's offset in the slice.
using Arrived = std::map<std::uint64_t, std::uint64_t>;

inline constexpr std::size_t kJournalHeaderBytes = 40;
inline constexpr std::size_t kJournalRecordBytes = 24;
inline constexpr std::uint64_t kMaxJournalBytes = std::uint64_t{256} << 20;

struct JournalContents {
    Arrived arrived;
    std::uint64_t good_bytes = 0;  // of the journal: whole records; 0: it is of something else
};
// Takes any bytes. `fingerprint` stands for the slice. Of several records for a slab, the last counts.
JournalContents parse_journal(ByteSpan bytes, const Digest& fingerprint);
ByteVector journal_header(const Digest& fingerprint);
ByteVector journal_record(const Digest& fingerprint, std::uint64_t target, std::uint64_t bytes);

// The journal's file, locked for as long as this lives.
class Journal {
  public:
    // Opens or creates it, cuts off a broken tail, and starts over where it is another slice's. ErrorKind::unavailable
    // when another process has it.
    static Result<Journal> open(const std::filesystem::path& path, const Digest& fingerprint);

    const Arrived& arrived() const { return arrived_; }  // as it was when opened
    // Forgets everything.
    Status start_over();
    // Not thread-safe. The record reaches the kernel, not necessarily the disk.
    Status append(std::uint64_t target, std::uint64_t bytes);
    // Deletes the file; the lock stays.
    void remove();

  private:
    Status write_all(ByteSpan bytes);

    std::filesystem::path path_;
    File file_;
    Digest fingerprint_{};
    Arrived arrived_;
};

}  // namespace kvasir::fetch
