#include "gguf/slice_contents.h"

#include <algorithm>

#include "gguf/stored_layer.h"

namespace kvasir {
namespace {

std::uint64_t align(std::uint64_t size) {
    return (size + kSliceAlignment - 1) / kSliceAlignment * kSliceAlignment;
}

SlicePiece piece_of(const ExpertLayer& layer, const ManifestLayer* listed, const Piece& piece) {
    SlicePiece part{piece, layer.experts, layer, {}};
    part.layer.experts = piece.count;
    part.layer.first_expert = piece.first;
    for (ExpertTensor& tensor : part.layer.tensors) {
        TensorShape shape = expert_shape(tensor.role, layer.hidden, layer.ff, piece.count);
        tensor.info.shape = shape.ne;
        tensor.info.dimensions = shape.dimensions;
        tensor.info.offset = tensor.slab_offset(piece.first);
        tensor.info.bytes = tensor.slab_bytes * piece.count;
        if (listed == nullptr) continue;
        const SlabDigests& all = listed->find(tensor.role)->slabs;
        part.digests.emplace_back(all.begin() + piece.first, all.begin() + piece.first + piece.count);
    }
    return part;
}

}  // namespace

bool is_slice(const GgufModel& model) {
    return model.metadata().contains("kvasir.slice.version");
}

SliceContents contents_of(const ExpertMap& map, const Manifest* manifest, std::span<const Piece> pieces) {
    SliceContents contents{map.architecture, map.name, std::nullopt, map.block_count, map.experts_used, {}};
    constexpr std::size_t kLongestName = 200;
    if (contents.name.size() > kLongestName) contents.name.resize(kLongestName);
    if (manifest != nullptr) contents.model_id = manifest->model_id();
    for (const Piece& piece : pieces) {
        const ManifestLayer* listed = manifest == nullptr ? nullptr : manifest->find(piece.layer);
        contents.pieces.push_back(piece_of(*map.find(piece.layer), listed, piece));
    }
    return contents;
}

std::vector<Piece> whole_model(const ExpertMap& map) {
    std::vector<Piece> pieces;
    for (const ExpertLayer& layer : map.layers)
        pieces.push_back({layer.layer, 0, layer.experts});
    return pieces;
}

SliceContents placed_in_slice(const SliceContents& source) {
    SliceContents placed = source;
    std::uint64_t offset = 0;
    std::size_t ordinal = 0;  // of the piece within its layer
    for (std::size_t i = 0; i < placed.pieces.size(); ++i) {
        SlicePiece& part = placed.pieces[i];
        bool same_layer = i > 0 && placed.pieces[i - 1].piece.layer == part.piece.layer;
        ordinal = same_layer ? ordinal + 1 : 0;
        for (ExpertTensor& tensor : part.layer.tensors) {
            tensor.info.name = slice_tensor_name(part.piece.layer, tensor.role, ordinal);
            tensor.info.file = 0;
            tensor.info.offset = offset;
            offset = align(offset + tensor.info.bytes);
        }
    }
    return placed;
}

std::vector<SlabPlace> slab_places(const SliceContents& contents) {
    std::vector<SlabPlace> places;
    for (std::size_t piece = 0; piece < contents.pieces.size(); ++piece) {
        const SlicePiece& part = contents.pieces[piece];
        for (std::size_t tensor = 0; tensor < part.layer.tensors.size(); ++tensor) {
            for (std::uint32_t expert = 0; expert < part.piece.count; ++expert)
                places.push_back({piece, tensor, expert});
        }
    }
    return places;
}

std::string describe_slab(const SliceContents& contents, const SlabPlace& place, const std::filesystem::path& file) {
    const SlicePiece& part = contents.pieces[place.piece];
    return fmt::format("{}: {}, expert {}", file.string(), part.layer.tensors[place.tensor].info.name,
                       part.piece.first + place.expert);
}

Result<HashStats> hash_slabs(const SliceContents& contents, std::span<const std::filesystem::path> files,
                             std::uint64_t data_offset, const std::string& title, bool quiet, const SlabSink& sink,
                             const std::atomic<bool>* cancel) {
    std::vector<File> opened;
    for (const std::filesystem::path& path : files) {
        Result<File> file = File::open(path);
        if (!file) return fail(file.error());
        opened.push_back(std::move(*file));
    }
    std::vector<SlabPlace> places = slab_places(contents);
    std::vector<HashJob> jobs;
    std::uint64_t total = 0;
    for (const SlabPlace& place : places) {
        const ExpertTensor& tensor = contents.pieces[place.piece].layer.tensors[place.tensor];
        std::uint32_t file = tensor.info.file;
        jobs.push_back(
            {&opened[file], &files[file], data_offset + tensor.slab_offset(place.expert), tensor.slab_bytes});
        total += tensor.slab_bytes;
    }
    Progress progress(title, total, ProgressUnit::bytes, quiet);
    auto take = [&](std::size_t job, const Digest& digest) { return sink(places[job], digest); };
    return hash_all(jobs, default_threads(), progress, take, cancel);
}

Status compare_slab(const SliceContents& contents, const SlabPlace& place, const Digest& found,
                    const std::filesystem::path& file) {
    const std::vector<SlabDigests>& known = contents.pieces[place.piece].digests;
    if (known.empty()) return {};
    const Digest& expected = known[place.tensor][place.expert];
    if (found == expected) return {};
    return fail(ErrorKind::invalid, "{}: damaged, its SHA-256 is {} and should be {}",
                describe_slab(contents, place, file), to_hex(found), to_hex(expected));
}

}  // namespace kvasir
