// The pieces a node holds on its disk: one slice file for each, downloaded when first asked for, within a quota.
#pragma once

#include <filesystem>
#include <vector>

#include "fetch/download.h"

namespace kvasir::fetch {

struct CachedPiece {
    std::filesystem::path path;
    Digest model{};
    Piece piece;
    std::uint64_t bytes = 0;
    bool complete = false;  // else a download that was begun
};

// One process at a time has a directory; not thread-safe. Files in it that are not the cache's are left alone and not
// counted.
class PieceCache {
  public:
    // Makes the directory where there is none. `quota` in bytes; 0: none. ErrorKind::unavailable when another process
    // has it.
    static Result<PieceCache> open(const std::filesystem::path& directory, std::uint64_t quota);

    // What there is, the longest unused first.
    Result<std::vector<CachedPiece>> list() const;

    struct Fetched {
        std::filesystem::path path;
        FetchReport report;
    };
    // The slice of `piece`, downloaded as fetch_slice() does it unless it is here. To stay within the quota, pieces
    // that are not among `leased` (of the same model) are deleted, the longest unused first; ErrorKind::io where that
    // would not be enough, before anything is deleted.
    Result<Fetched> ensure(const Manifest& manifest, const Piece& piece, const std::vector<Piece>& leased,
                           const std::vector<Source>& sources, const FetchOptions& options);

    // Deletes what is not among `leased`, of whatever model. Returns the bytes freed.
    Result<std::uint64_t> evict(const Digest& model, const std::vector<Piece>& leased);

    // A manifest kept here by an earlier keep(), checked against its id; none where there is none.
    std::optional<Manifest> kept_manifest(const Digest& id) const;
    Status keep(const Manifest& manifest) const;

  private:
    std::filesystem::path path_of(const Digest& model, const Piece& piece) const;
    Status make_room(std::uint64_t size, const std::filesystem::path& wanted, const Digest& model,
                     const std::vector<Piece>& leased);

    std::filesystem::path directory_;
    std::uint64_t quota_ = 0;
    File lock_;
};

}  // namespace kvasir::fetch
