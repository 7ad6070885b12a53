// What a partial download consists of: the slice to be made, and where each of its slabs comes from.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gguf/manifest.h"
#include "gguf/piece.h"
#include "gguf/slice_contents.h"

namespace kvasir::fetch {

struct WantedSlab {
    std::uint32_t file = 0;    // of the manifest
    std::uint64_t offset = 0;  // in that file
    std::uint64_t bytes = 0;
    std::uint64_t target = 0;  // offset in the slice
    Digest digest{};
    SlabPlace place;
};

struct FetchPlan {
    std::vector<ManifestFile> files;
    SliceContents contents;         // as the slice has them
    ByteVector header;              // the slice's first bytes, known without downloading anything
    std::vector<WantedSlab> slabs;  // by file and offset
    std::uint64_t slab_bytes = 0;
    std::uint64_t size = 0;  // of the slice

    // "blk.3.ffn_up_exps.weight, expert 17"
    std::string describe(std::size_t slab) const;
};

// The manifest's own view of its model: what map_experts() would find in the model's files.
ExpertMap map_of(const Manifest& manifest);

// The slice that `kvasir slice` would cut with this manifest, byte for byte. ErrorKind::usage for pieces that the model
// does not have, or too many of them; ErrorKind::invalid for a manifest whose experts make no valid slice.
Result<FetchPlan> make_plan(const Manifest& manifest, std::vector<Piece> pieces);

}  // namespace kvasir::fetch
