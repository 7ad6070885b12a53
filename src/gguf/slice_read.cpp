#include "gguf/slice.h"
#include "gguf/slice_contents.h"

namespace kvasir {
namespace {

// The manifest beside a whole model, if there is one; it must be this model's.
Result<std::optional<Manifest>> manifest_beside(const GgufModel& model, const ExpertMap& map) {
    std::filesystem::path path = manifest_path(model.files().front().path);
    std::error_code ignored;
    if (!std::filesystem::exists(path, ignored)) return std::optional<Manifest>();
    Result<Manifest> manifest = load_manifest(path);
    if (!manifest) return fail(manifest.error());
    if (Status same = matches(*manifest, map); !same) {
        return fail(same.error().within(fmt::format("{}: is not this model's (publish it again)", path.string())));
    }
    return std::optional<Manifest>(std::move(*manifest));
}

Result<ExpertMap> map_model(const GgufModel& model) {
    std::string path = model.files().front().path.string();
    Result<ExpertMap> map = map_experts(model);
    if (!map) return fail(map.error().within(path));
    if (map->layers.empty()) return fail(ErrorKind::unsupported, "{}: a dense model, it has no routed experts", path);
    return map;
}

Result<SliceContents> whole_contents(const GgufModel& model) {
    Result<ExpertMap> map = map_model(model);
    if (!map) return fail(map.error());
    Result<std::optional<Manifest>> manifest = manifest_beside(model, *map);
    if (!manifest) return fail(manifest.error());
    return contents_of(*map, *manifest ? &**manifest : nullptr, whole_model(*map));
}

// Everything in the slice is the manifest's: geometry, recipes, digests.
Status agrees(const SliceContents& contents, const Manifest& manifest) {
    if (contents.model_id && *contents.model_id != manifest.model_id()) {
        return fail(ErrorKind::invalid, "cut from model {}, the manifest is of model {}", to_hex(*contents.model_id),
                    to_hex(manifest.model_id()));
    }
    for (const SlicePiece& part : contents.pieces) {
        const ManifestLayer* listed = manifest.find(part.piece.layer);
        if (listed == nullptr) return fail(ErrorKind::invalid, "layer {} is not in the manifest", part.piece.layer);
        bool same = listed->experts == part.model_experts && listed->hidden == part.layer.hidden &&
                    listed->ff == part.layer.ff && listed->recipe == part.layer.recipe &&
                    listed->tensors.size() == part.layer.tensors.size();
        if (!same) {
            return fail(ErrorKind::invalid, "layer {}: another geometry or recipe than in the manifest",
                        part.piece.layer);
        }
        for (std::size_t i = 0; i < part.layer.tensors.size(); ++i) {
            const ExpertTensor& tensor = part.layer.tensors[i];
            const ManifestTensor* origin = listed->find(tensor.role);
            if (origin == nullptr || origin->type != tensor.info.type || origin->slab_bytes != tensor.slab_bytes) {
                return fail(ErrorKind::invalid, "{}: another tensor than in the manifest", tensor.info.name);
            }
            for (std::uint32_t expert = 0; expert < part.piece.count; ++expert) {
                if (part.digests[i][expert] == origin->slabs[part.piece.first + expert]) continue;
                return fail(ErrorKind::invalid, "{}, expert {}: the slice has another digest than the manifest",
                            tensor.info.name, part.piece.first + expert);
            }
        }
    }
    return {};
}

Result<SliceContents> contents_to_check(const GgufModel& model, const Manifest* manifest) {
    std::string path = model.files().front().path.string();
    if (is_slice(model)) {
        Result<SliceContents> contents = decode_slice(model);
        if (!contents || manifest == nullptr) return contents;
        if (Status same = agrees(*contents, *manifest); !same) return fail(same.error().within(path));
        return contents;
    }
    if (manifest == nullptr) {
        return fail(ErrorKind::usage, "{}: is a whole model, which has no digests of its own; publish it first", path);
    }
    Result<ExpertMap> map = map_model(model);
    if (!map) return fail(map.error());
    if (Status same = matches(*manifest, *map); !same) {
        return fail(same.error().within(fmt::format("{}: the manifest is not this model's", path)));
    }
    return contents_of(*map, manifest, whole_model(*map));
}

}  // namespace

Result<Slice> open_slice(const std::filesystem::path& path) {
    Result<GgufModel> model = GgufModel::open(path);
    if (!model) return fail(model.error());
    Result<SliceContents> contents = is_slice(*model) ? decode_slice(*model) : whole_contents(*model);
    if (!contents) return fail(contents.error());
    Slice slice{std::move(*model),
                contents->architecture,
                contents->name,
                contents->model_id,
                contents->block_count,
                contents->experts_used,
                {}};
    for (SlicePiece& part : contents->pieces) {
        slice.layers.push_back({part.piece, part.model_experts, std::move(part.layer)});
    }
    return slice;
}

Result<std::uint64_t> check_slice(const std::filesystem::path& path, const Manifest* manifest, bool quiet) {
    Result<GgufModel> model = GgufModel::open(path);
    if (!model) return fail(model.error());
    Result<SliceContents> contents = contents_to_check(*model, manifest);
    if (!contents) return fail(contents.error());
    std::vector<std::filesystem::path> files;
    for (const ModelFile& file : model->files())
        files.push_back(file.path);
    auto compare = [&](const SlabPlace& place, const Digest& digest) {
        const ExpertTensor& tensor = contents->pieces[place.piece].layer.tensors[place.tensor];
        return compare_slab(*contents, place, digest, files[tensor.info.file]);
    };
    Result<HashStats> hashed = hash_slabs(*contents, files, 0, "checking", quiet, compare);
    if (!hashed) return fail(hashed.error());
    return hashed->bytes;
}

}  // namespace kvasir
