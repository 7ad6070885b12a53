#include "gguf/manifest.h"

#include <algorithm>
#include <cctype>

#include "gguf/stored_layer.h"

namespace kvasir {
namespace {

constexpr std::string_view kIdPrefix = "kvasir-model-1";

void write_tensor(ByteWriter& writer, const ManifestTensor& tensor) {
    writer.write(static_cast<std::uint8_t>(tensor.role));
    writer.write(tensor.type);
    for (std::uint64_t extent : tensor.shape)
        writer.write(extent);
    writer.write(tensor.slab_bytes);
    writer.write(static_cast<std::uint32_t>(tensor.slabs.size()));
    for (const Digest& digest : tensor.slabs)
        writer.append(digest);
}

// "model-00003-of-00007.gguf" → "model-00001-of-00007.gguf"; any other name as it is.
std::filesystem::path first_split(const std::filesystem::path& model) {
    constexpr std::string_view kPattern = "-NNNNN-of-NNNNN.gguf";
    std::string name = model.filename().string();
    if (name.size() <= kPattern.size()) return model;
    std::size_t start = name.size() - kPattern.size();
    for (std::size_t i = 0; i < kPattern.size(); ++i) {
        bool digit = std::isdigit(static_cast<unsigned char>(name[start + i])) != 0;
        if (kPattern[i] == 'N' ? !digit : name[start + i] != kPattern[i]) return model;
    }
    return model.parent_path() / name.replace(start + 1, 5, "00001");
}

Status layer_matches(const ManifestLayer& listed, const ExpertLayer& layer) {
    if (listed.experts != layer.experts || listed.hidden != layer.hidden || listed.ff != layer.ff) {
        return fail(ErrorKind::invalid, "layer {}: {} experts of {} x {}, the manifest has {} of {} x {}", layer.layer,
                    layer.experts, layer.hidden, layer.ff, listed.experts, listed.hidden, listed.ff);
    }
    if (listed.recipe != layer.recipe) {
        return fail(ErrorKind::invalid, "layer {}: its recipe is {}, in the manifest {}", layer.layer,
                    describe(layer.recipe), describe(listed.recipe));
    }
    if (listed.tensors.size() != layer.tensors.size()) {
        return fail(ErrorKind::invalid, "layer {}: {} expert tensors, the manifest has {}", layer.layer,
                    layer.tensors.size(), listed.tensors.size());
    }
    for (const ExpertTensor& tensor : layer.tensors) {
        const ManifestTensor* same = listed.find(tensor.role);
        if (same == nullptr) return fail(ErrorKind::invalid, "{}: not in the manifest", tensor.info.name);
        bool equal = same->name == tensor.info.name && same->type == tensor.info.type &&
                     same->shape == tensor.info.shape && same->slab_bytes == tensor.slab_bytes;
        if (!equal) return fail(ErrorKind::invalid, "{}: another name, type or shape in the manifest", same->name);
        if (same->file != tensor.info.file || same->offset != tensor.info.offset) {
            return fail(ErrorKind::invalid, "{}: at byte {} of file {}, in the manifest at byte {} of file {}",
                        same->name, tensor.info.offset, tensor.info.file, same->offset, same->file);
        }
    }
    return {};
}

}  // namespace

const ManifestTensor* ManifestLayer::find(Role role) const {
    auto found = std::ranges::find(tensors, role, &ManifestTensor::role);
    return found == tensors.end() ? nullptr : &*found;
}

const ManifestLayer* Manifest::find(std::uint32_t layer) const {
    auto found = std::ranges::lower_bound(layers, layer, {}, &ManifestLayer::layer);
    return found == layers.end() || found->layer != layer ? nullptr : &*found;
}

Digest Manifest::model_id() const {
    ByteWriter writer;
    writer.append(std::as_bytes(std::span(kIdPrefix)));
    writer.write_string<std::uint32_t>(architecture);
    writer.write(block_count);
    writer.write(experts_used);
    writer.write(static_cast<std::uint32_t>(layers.size()));
    for (const ManifestLayer& layer : layers) {
        writer.write(layer.layer);
        writer.write(layer.experts);
        writer.write(layer.hidden);
        writer.write(layer.ff);
        writer.append(stored_recipe(layer.recipe));
        writer.write(static_cast<std::uint32_t>(layer.tensors.size()));
        for (const ManifestTensor& tensor : layer.tensors)
            write_tensor(writer, tensor);
    }
    return sha256(writer.buffer());
}

std::filesystem::path manifest_path(const std::filesystem::path& model) {
    std::filesystem::path path = first_split(model);
    path += ".kvasir.json";
    return path;
}

Result<Manifest> load_manifest(const std::filesystem::path& path) {
    Result<std::string> text = read_text_file(path, kMaxManifestBytes);
    if (!text) return fail(text.error());
    Result<Manifest> manifest = parse_manifest(*text);
    if (!manifest) return fail(manifest.error().within(path.string()));
    return manifest;
}

Status matches(const Manifest& manifest, const ExpertMap& map) {
    if (manifest.architecture != map.architecture) {
        return fail(ErrorKind::invalid, "the model's architecture is '{}', the manifest's '{}'", map.architecture,
                    manifest.architecture);
    }
    if (manifest.block_count != map.block_count || manifest.experts_used != map.experts_used) {
        return fail(ErrorKind::invalid, "the model has {} blocks and uses {} experts, the manifest says {} and {}",
                    map.block_count, map.experts_used, manifest.block_count, manifest.experts_used);
    }
    if (manifest.layers.size() != map.layers.size()) {
        return fail(ErrorKind::invalid, "the model has {} layers with experts, the manifest {}", map.layers.size(),
                    manifest.layers.size());
    }
    for (const ExpertLayer& layer : map.layers) {
        const ManifestLayer* listed = manifest.find(layer.layer);
        if (listed == nullptr) return fail(ErrorKind::invalid, "layer {} is not in the manifest", layer.layer);
        if (Status same = layer_matches(*listed, layer); !same) return same;
    }
    return {};
}

}  // namespace kvasir
