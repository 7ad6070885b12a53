// A slice: a valid GGUF holding only chosen slabs, byte for byte, under the original tensor names. docs/slice-format.md
// has the kvasir.slice.* keys. Several pieces of one layer become several tensors ("blk.3.ffn_up_exps.weight" and, for
// the second piece, "blk.3.ffn_up_exps.weight.1", …).
#pragma once

#include <atomic>
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
    double seconds = 0;            // all of it
    double copy_seconds = 0;       // the byte copy alone
    double verify_seconds = 0;     // reading back and hashing
};

// Copies `pieces` of the model into `out`, atomically: overlapping and touching pieces are merged first. With a
// manifest every slab is read back and compared with its digest before the file appears, and the slice carries the
// model id; without one it can be computed with, not re-verified against its origin (its own digests are stored all the
// same). Nothing is left behind on an error, among them: pieces the model hasn't got, a manifest of another model, no
// space, `out` being one of the model's files, a directory or in no directory. `cancel`, when set by anybody, ends it
// with ErrorKind::unavailable.
Result<SliceReport> write_slice(const GgufModel& model, const ExpertMap& map, const Manifest* manifest,
                                std::vector<Piece> pieces, const std::filesystem::path& out, bool quiet,
                                const std::atomic<bool>* cancel = nullptr);

// An opened slice (or a whole model, which is the slice of everything): what a worker serves.
struct SliceLayer {
    Piece piece;
    std::uint32_t model_experts = 0;  // experts of this layer in the whole model
    ExpertLayer layer;                // experts = piece.count, first_expert = piece.first; offsets into `model`'s files
};
struct Slice {
    GgufModel model;
    std::string architecture;
    std::string name;
    std::optional<Digest> model_id;  // none when cut without a manifest
    std::uint32_t block_count = 0;   // of the whole model
    std::uint32_t experts_used = 0;  // top-k
    std::vector<SliceLayer> layers;  // one per piece, sorted
};
// Reads headers, no weights. A slice whose keys and tensors contradict each other is ErrorKind::invalid. A whole model
// takes its id from the manifest beside it where there is one, which must match; a dense model is refused.
Result<Slice> open_slice(const std::filesystem::path& path);

// Re-reads every slab and compares it with the digests in the file, and those with the manifest if given (a whole model
// has no digests of its own: it needs the manifest). A damaged slab, or another model than the manifest's, is
// ErrorKind::invalid; the former names file, tensor and expert. Returns the bytes checked.
Result<std::uint64_t> check_slice(const std::filesystem::path& path, const Manifest* manifest, bool quiet);

}  // namespace kvasir
