// The manifest as JSON: writing it, and reading it without trusting it.
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "base/hex.h"
#include "gguf/manifest.h"
#include "gguf/stored_layer.h"

namespace kvasir {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFormat = "kvasir-manifest";
constexpr int kVersion = 1;
constexpr int kMaxDepth = 8;
constexpr std::uint64_t kMaxValues = 2'000'000;
constexpr std::uint64_t kMaxNumber = std::uint64_t{1} << 56;
constexpr std::size_t kMaxText = 1024;

// Thrown and caught within this file, next to what the JSON library throws.
template <class... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) {
    throw std::invalid_argument(fmt::format(format, std::forward<Args>(args)...));
}

const Json& member(const Json& object, const char* key) {
    auto found = object.find(key);  // end() as well where `object` is no object
    if (found == object.end()) refuse("'{}' is missing", key);
    return *found;
}

std::uint64_t read_number(const Json& object, const char* key, std::uint64_t least, std::uint64_t most) {
    const Json& value = member(object, key);
    if (!value.is_number_unsigned()) refuse("'{}' is not a non-negative integer", key);
    auto number = value.get<std::uint64_t>();
    if (number < least || number > most) refuse("'{}' is {}, allowed are {} to {}", key, number, least, most);
    return number;
}

std::uint32_t read_small(const Json& object, const char* key, std::uint32_t least, std::uint32_t most) {
    return static_cast<std::uint32_t>(read_number(object, key, least, most));
}

std::string read_text(const Json& object, const char* key) {
    const Json& value = member(object, key);
    if (!value.is_string()) refuse("'{}' is not a string", key);
    auto text = value.get<std::string>();
    if (text.size() > kMaxText) refuse("'{}' is {} bytes long, at most {} allowed", key, text.size(), kMaxText);
    return text;
}

const Json& read_array(const Json& object, const char* key, std::size_t least, std::size_t most) {
    const Json& value = member(object, key);
    if (!value.is_array()) refuse("'{}' is not an array", key);
    if (value.size() < least || value.size() > most) {
        refuse("'{}' has {} elements, allowed are {} to {}", key, value.size(), least, most);
    }
    return value;
}

Digest read_digest(const Json& value) {
    if (!value.is_string()) refuse("a digest is not a string");
    Result<Digest> digest = digest_from_hex(value.get_ref<const std::string&>());
    if (!digest) refuse("{}", digest.error().message);
    return *digest;
}

std::string recipe_hex(const Recipe& recipe) {
    return hex(stored_recipe(recipe));
}

Recipe read_recipe_hex(const Json& object) {
    const std::string digits = read_text(object, "recipe");
    if (digits.size() != 2 * kRecipeBytes) {
        refuse("'recipe' is {} hex digits, not {}", digits.size(), 2 * kRecipeBytes);
    }
    Result<ByteVector> bytes = bytes_from_hex(digits);
    if (!bytes) refuse("'recipe': {}", bytes.error().message);
    Result<Recipe> recipe = parse_stored_recipe(*bytes);
    if (!recipe) refuse("'recipe': {}", recipe.error().message);
    return *recipe;
}

// A name is joined to a directory later on: it must not lead out of it.
ManifestFile read_file(const Json& object) {
    ManifestFile file{read_text(object, "name"), read_number(object, "size", 1, kMaxNumber)};
    bool harmless = !file.name.empty() && file.name != "." && file.name != "..";
    for (char c : file.name)
        harmless = harmless && c != '/' && c != '\\' && static_cast<unsigned char>(c) >= ' ';
    if (!harmless) refuse("'{}' is not a plain file name", file.name);
    return file;
}

ManifestTensor read_tensor(const Json& object, const ManifestLayer& layer, Role role, const Manifest& manifest) {
    ManifestTensor tensor;
    tensor.role = role;
    tensor.name = read_text(object, "name");
    if (tensor.name != expert_tensor_name(layer.layer, role)) {
        refuse("a tensor is called '{}' where the recipe wants '{}'", tensor.name,
               expert_tensor_name(layer.layer, role));
    }
    tensor.type = read_small(object, "type", 0, 1000);
    const Json& shape = read_array(object, "shape", 1, 4);
    TensorShape expected = expert_shape(role, layer.hidden, layer.ff, layer.experts);
    for (std::size_t i = 0; i < shape.size(); ++i) {
        if (!shape[i].is_number_unsigned()) refuse("{}: 'shape' holds something other than numbers", tensor.name);
        tensor.shape[i] = shape[i].get<std::uint64_t>();
    }
    if (tensor.shape != expected.ne) refuse("{}: its shape contradicts the layer's geometry", tensor.name);
    tensor.file = read_small(object, "file", 0, static_cast<std::uint32_t>(manifest.files.size() - 1));
    std::uint64_t size = manifest.files[tensor.file].size;
    tensor.offset = read_number(object, "offset", 0, size);
    tensor.slab_bytes = read_number(object, "slab_bytes", 1, size);
    if (tensor.slab_bytes > (size - tensor.offset) / layer.experts) {
        refuse("{}: ends after its file, which has {} bytes", tensor.name, size);
    }
    for (const Json& digest : read_array(object, "sha256", layer.experts, layer.experts)) {
        tensor.slabs.push_back(read_digest(digest));
    }
    return tensor;
}

ManifestLayer read_layer(const Json& object, const Manifest& manifest) {
    ManifestLayer layer;
    layer.layer = read_small(object, "layer", 0, 1'000'000);
    layer.experts = read_small(object, "experts", 1, 1'000'000);
    layer.hidden = read_number(object, "hidden", 1, std::uint64_t{1} << 32);
    layer.ff = read_number(object, "ff", 1, std::uint64_t{1} << 32);
    layer.recipe = read_recipe_hex(object);
    if (!manifest.layers.empty() && manifest.layers.back().layer >= layer.layer) refuse("layers are not ascending");
    std::vector<Role> roles = roles_of(layer.recipe);
    const Json& tensors = read_array(object, "tensors", roles.size(), roles.size());
    for (std::size_t i = 0; i < roles.size(); ++i) {
        layer.tensors.push_back(read_tensor(tensors[i], layer, roles[i], manifest));
    }
    return layer;
}

// What they are good for is found out by whoever asks them.
std::vector<std::string> read_mirrors(const Json& json) {
    std::vector<std::string> mirrors;
    if (!json.contains("mirrors")) return mirrors;
    for (const Json& mirror : read_array(json, "mirrors", 0, kMaxManifestMirrors)) {
        if (!mirror.is_string()) refuse("a mirror is not a string");
        mirrors.push_back(mirror.get<std::string>());
        if (mirrors.back().size() > kMaxText) refuse("a mirror's URL is longer than {} bytes", kMaxText);
    }
    return mirrors;
}

Manifest read_manifest(const Json& json) {
    if (!json.is_object()) refuse("not a JSON object");
    if (read_text(json, "format") != kFormat) refuse("'format' is not '{}'", kFormat);
    Manifest manifest;
    manifest.architecture = read_text(json, "architecture");
    manifest.name = read_text(json, "name");
    manifest.block_count = read_small(json, "block_count", 0, 1'000'000);
    manifest.experts_used = read_small(json, "experts_used", 0, 1'000'000);
    for (const Json& file : read_array(json, "files", 1, 100'000))
        manifest.files.push_back(read_file(file));
    for (const Json& layer : read_array(json, "layers", 1, 100'000)) {
        manifest.layers.push_back(read_layer(layer, manifest));
    }
    manifest.mirrors = read_mirrors(json);
    Digest stored = read_digest(member(json, "model_id"));
    if (Digest computed = manifest.model_id(); stored != computed) {
        refuse("'model_id' is {}, but its contents make {}: the file is damaged", to_hex(stored), to_hex(computed));
    }
    return manifest;
}

// Bounds what a hostile text can make of memory and stack before any of it is understood.
Json parse_bounded(std::string_view text) {
    std::uint64_t values = 0;
    auto check = [&values](int depth, Json::parse_event_t /*event*/, Json& /*value*/) {
        if (depth > kMaxDepth) refuse("nested more than {} deep", kMaxDepth);
        if (++values > kMaxValues) refuse("more than {} values", kMaxValues);
        return true;
    };
    return Json::parse(text, check);
}

Json tensor_json(const ManifestTensor& tensor) {
    Json digests = Json::array();
    for (const Digest& digest : tensor.slabs)
        digests.push_back(to_hex(digest));
    return {{"role", role_name(tensor.role)},
            {"name", tensor.name},
            {"type", tensor.type},
            {"type_name", type_name(tensor.type)},
            {"shape", tensor.shape},
            {"file", tensor.file},
            {"offset", tensor.offset},
            {"slab_bytes", tensor.slab_bytes},
            {"sha256", std::move(digests)}};
}

Json layer_json(const ManifestLayer& layer) {
    Json tensors = Json::array();
    for (const ManifestTensor& tensor : layer.tensors)
        tensors.push_back(tensor_json(tensor));
    return {{"layer", layer.layer},
            {"experts", layer.experts},
            {"hidden", layer.hidden},
            {"ff", layer.ff},
            {"recipe", recipe_hex(layer.recipe)},
            {"recipe_text", describe(layer.recipe)},
            {"tensors", std::move(tensors)}};
}

}  // namespace

Result<Manifest> parse_manifest(std::string_view json) {
    if (json.size() > kMaxManifestBytes) {
        return fail(ErrorKind::invalid, "{} bytes, at most {} allowed", json.size(), kMaxManifestBytes);
    }
    try {
        Json parsed = parse_bounded(json);
        // Before anything else is asked of it, so that a newer format is called that.
        if (parsed.is_object() && read_number(parsed, "version", 0, kMaxNumber) > kVersion) {
            return fail(ErrorKind::unsupported, "manifest version {}, this program knows {}",
                        parsed["version"].get<std::uint64_t>(), kVersion);
        }
        return read_manifest(parsed);
    } catch (const std::exception& error) {
        return fail(ErrorKind::invalid, "not a valid manifest: {}", error.what());
    }
}

std::string to_json(const Manifest& manifest) {
    Json files = Json::array();
    for (const ManifestFile& file : manifest.files)
        files.push_back({{"name", file.name}, {"size", file.size}});
    Json layers = Json::array();
    for (const ManifestLayer& layer : manifest.layers)
        layers.push_back(layer_json(layer));
    Json json = {{"format", kFormat},
                 {"version", kVersion},
                 {"model_id", to_hex(manifest.model_id())},
                 {"architecture", manifest.architecture},
                 {"name", manifest.name},
                 {"block_count", manifest.block_count},
                 {"experts_used", manifest.experts_used},
                 {"files", std::move(files)},
                 {"layers", std::move(layers)}};
    if (!manifest.mirrors.empty()) json["mirrors"] = manifest.mirrors;
    return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace kvasir
