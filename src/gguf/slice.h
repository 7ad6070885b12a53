// A slice: a valid GGUF holding only chosen slabs, byte for byte, under the original tensor names. docs/slice-format.md
// has the kvasir.slice.* keys. Several pieces of one layer become several tensors ("blk.3.ffn_up_exps.weight" and, for
// the second piece, "blk.3.ffn_up_exps.weight.1", …).
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "gguf/manifest.h"
#include "gguf/piece.h"

namespace kvasir {

struct SliceReport {
    std::uint64_t bytes = 0;       // of the file
    std::uint64_t slab_bytes = 0;  // of weights in it
    bool verified = false;         // every slab was read back and compared with the manifest
    double seconds = 0;
};

// Copies `pieces` of the model into `out`, atomically. With a manifest every slab is compared with its digest before
// the file appears, and the slice carries model id and digests; without one it can be computed with, not re-verified
// against its origin (its own digests are stored all the same).
Result<SliceReport> write_slice(const GgufModel& model, const ExpertMap& map, const Manifest* manifest,
                                std::vector<Piece> pieces, const std::filesystem::path& out, bool quiet);

// An opened slice (or a whole model, which is the slice of everything): what a worker serves.
struct SliceLayer {
    Piece piece;
    ExpertLayer layer;  // experts = piece.count, first_expert = piece.first; offsets into `model`'s files
};
struct Slice {
    GgufModel model;
    std::string architecture;
    std::string name;
    std::optional<Digest> model_id;  // none when cut without a manifest
    std::vector<SliceLayer> layers;  // one per piece, sorted
};
Result<Slice> open_slice(const std::filesystem::path& path);

// Re-reads every slab and compares it with the digests in the file, and those with the manifest if given. A damaged
// slab is ErrorKind::invalid, naming tensor and expert. Returns the bytes checked.
Result<std::uint64_t> check_slice(const std::filesystem::path& path, const Manifest* manifest, bool quiet);

}  // namespace kvasir
