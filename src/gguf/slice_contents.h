// What a slice file says about itself, between its header's bytes and the rest of the program.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gguf/manifest.h"
#include "gguf/piece.h"
#include "gguf/slab_hash.h"

namespace kvasir {

inline constexpr std::uint32_t kSliceAlignment = 32;
inline constexpr std::size_t kMaxSlicePieces = 60'000;

// The digests of one tensor's slabs, in expert order.
using SlabDigests = std::vector<Digest>;

struct SlicePiece {
    Piece piece;
    std::uint32_t model_experts = 0;   // experts of this layer in the whole model
    ExpertLayer layer;                 // of the piece's experts alone
    std::vector<SlabDigests> digests;  // one element per tensor of `layer`; empty where nobody knows them
};

struct SliceContents {
    std::string architecture;
    std::string name;
    std::optional<Digest> model_id;
    std::uint32_t block_count = 0;
    std::uint32_t experts_used = 0;
    std::vector<SlicePiece> pieces;  // sorted, neither touching nor overlapping
};

bool is_slice(const GgufModel& model);
// "blk.3.ffn_up_exps.weight", for the layer's second piece "blk.3.ffn_up_exps.weight.1", and so on.
std::string slice_tensor_name(std::uint32_t layer, Role role, std::size_t ordinal);

// `pieces` (normalized) of a model as they lie in the model's own files, with the manifest's digests if there is one,
// which must match the map.
SliceContents contents_of(const ExpertMap& map, const Manifest* manifest, std::span<const Piece> pieces);
// Every expert of every layer.
std::vector<Piece> whole_model(const ExpertMap& map);

// The same contents as a slice file has them: tensors named and placed there, offsets from the first byte of the data.
SliceContents placed_in_slice(const SliceContents& source);
// The slice file's header, padded to the first byte of the data. Digests nobody knows are written as zeros; their size
// is the same, so that the header can be written again once they are known.
ByteVector encode_slice_header(const SliceContents& contents);
// Checks everything the header claims against the tensors that are there.
Result<SliceContents> decode_slice(const GgufModel& model);

// Every slab of the contents, in file order of the pieces.
struct SlabPlace {
    std::size_t piece = 0;
    std::size_t tensor = 0;
    std::uint32_t expert = 0;  // local to the piece
};
std::vector<SlabPlace> slab_places(const SliceContents& contents);
// "model.gguf: blk.3.ffn_up_exps.weight, expert 17"
std::string describe_slab(const SliceContents& contents, const SlabPlace& place, const std::filesystem::path& file);
// Hashes every slab found at its info.file of `files` plus `data_offset`, and hands the digest to `sink`.
using SlabSink = std::function<Status(const SlabPlace& place, const Digest& digest)>;
Result<HashStats> hash_slabs(const SliceContents& contents, std::span<const std::filesystem::path> files,
                             std::uint64_t data_offset, const std::string& title, bool quiet, const SlabSink& sink,
                             const std::atomic<bool>* cancel = nullptr);
// Damage, where `found` is not what the contents say; nothing where they say nothing.
Status compare_slab(const SliceContents& contents, const SlabPlace& place, const Digest& found,
                    const std::filesystem::path& file);

}  // namespace kvasir
