#include "fetch/plan.h"

#include <algorithm>

#include "gguf/stored_layer.h"

namespace kvasir::fetch {
namespace {

constexpr std::uint64_t kLargest = std::uint64_t{1} << 56;

ExpertLayer layer_of(const ManifestLayer& listed) {
    ExpertLayer layer;
    layer.layer = listed.layer;
    layer.experts = listed.experts;
    layer.hidden = listed.hidden;
    layer.ff = listed.ff;
    layer.recipe = listed.recipe;
    for (const ManifestTensor& tensor : listed.tensors) {
        ExpertTensor& mapped = layer.tensors.emplace_back();
        mapped.role = tensor.role;
        mapped.slab_bytes = tensor.slab_bytes;
        mapped.info.name = tensor.name;
        mapped.info.type = tensor.type;
        mapped.info.shape = tensor.shape;
        mapped.info.dimensions = expert_shape(tensor.role, listed.hidden, listed.ff, listed.experts).dimensions;
        mapped.info.file = tensor.file;
        mapped.info.offset = tensor.offset;
        mapped.info.bytes = tensor.slab_bytes * listed.experts;
    }
    return layer;
}

Status check_piece(const Manifest& manifest, const Piece& piece) {
    const ManifestLayer* layer = manifest.find(piece.layer);
    if (layer == nullptr) {
        return fail(ErrorKind::usage, "layer {} does not exist or has no routed experts", piece.layer);
    }
    if (std::uint64_t{piece.first} + piece.count > layer->experts) {
        return fail(ErrorKind::usage, "layer {} has no experts {}-{}: its experts are 0-{}", piece.layer, piece.first,
                    std::uint64_t{piece.first} + piece.count - 1, layer->experts - 1);
    }
    return {};
}

// Sizes and types as a manifest states them need not fit together; the slice they would make is asked, before a byte of
// it is on its way.
Status check_slice_of(const FetchPlan& plan) {
    Result<GgufModel> model = GgufModel::parse(plan.header, plan.size, GgufLength::complete);
    if (!model) return fail(model.error().within("the manifest describes no valid slice"));
    Result<SliceContents> contents = decode_slice(*model);
    if (!contents) return fail(contents.error().within("the manifest describes no valid slice"));
    return {};
}

}  // namespace

std::string FetchPlan::describe(std::size_t slab) const {
    const SlabPlace& place = slabs[slab].place;
    const SlicePiece& part = contents.pieces[place.piece];
    return fmt::format("{}, expert {}", part.layer.tensors[place.tensor].info.name, part.piece.first + place.expert);
}

ExpertMap map_of(const Manifest& manifest) {
    ExpertMap map;
    map.architecture = manifest.architecture;
    map.name = manifest.name;
    map.block_count = manifest.block_count;
    map.experts_used = manifest.experts_used;
    for (const ManifestLayer& listed : manifest.layers) {
        map.layers.push_back(layer_of(listed));
        map.hidden = listed.hidden;
        map.expert_bytes += map.layers.back().expert_bytes() * listed.experts;
    }
    return map;
}

Result<FetchPlan> make_plan(const Manifest& manifest, std::vector<Piece> pieces) {
    for (const Piece& piece : pieces) {
        if (Status there = check_piece(manifest, piece); !there) return fail(there.error());
    }
    pieces = normalized(std::move(pieces));
    if (pieces.empty() || pieces.size() > kMaxSlicePieces) {
        return fail(ErrorKind::usage, "{} pieces are selected; a slice holds 1 to {}", pieces.size(), kMaxSlicePieces);
    }
    const SliceContents source = contents_of(map_of(manifest), &manifest, pieces);
    FetchPlan plan;
    plan.files = manifest.files;
    plan.contents = placed_in_slice(source);
    plan.header = encode_slice_header(plan.contents);
    plan.size = plan.header.size();
    for (const SlabPlace& place : slab_places(source)) {
        const ExpertTensor& from = source.pieces[place.piece].layer.tensors[place.tensor];
        const ExpertTensor& to = plan.contents.pieces[place.piece].layer.tensors[place.tensor];
        plan.slabs.push_back({from.info.file, from.slab_offset(place.expert), from.slab_bytes,
                              plan.header.size() + to.slab_offset(place.expert),
                              source.pieces[place.piece].digests[place.tensor][place.expert], place});
        plan.slab_bytes += from.slab_bytes;
        if (from.slab_bytes > kLargest || plan.slab_bytes > kLargest) {
            return fail(ErrorKind::invalid, "the manifest's experts are larger than any file can be");
        }
        plan.size = std::max(plan.size, plan.slabs.back().target + from.slab_bytes);
    }
    plan.size = (plan.size + kSliceAlignment - 1) / kSliceAlignment * kSliceAlignment;
    std::ranges::sort(plan.slabs, {}, [](const WantedSlab& slab) { return std::pair(slab.file, slab.offset); });
    if (Status valid = check_slice_of(plan); !valid) return fail(valid.error());
    return plan;
}

}  // namespace kvasir::fetch
