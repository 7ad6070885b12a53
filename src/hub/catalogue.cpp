#include "hub/catalogue.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "gguf/slab_hash.h"
#include "http/url.h"

namespace kvasir::hub {
namespace {

std::filesystem::path where_manifest_goes(const std::filesystem::path& model, const PublishSettings& settings) {
    std::filesystem::path beside = manifest_path(model);
    std::error_code ignored;
    if (settings.manifests.empty() || std::filesystem::exists(beside, ignored)) return beside;
    return settings.manifests / beside.filename();
}

Result<Manifest> manifest_of(const GgufModel& model, const PublishSettings& settings) {
    const std::string name = model.files().front().path.string();
    Result<ExpertMap> map = map_experts(model);
    if (!map) return fail(map.error().within(name));
    const std::filesystem::path path = where_manifest_goes(model.files().front().path, settings);
    std::error_code ignored;
    if (!std::filesystem::exists(path, ignored)) {
        PublishOptions options;
        options.threads = default_threads();
        options.cancel = settings.cancel;
        Result<PublishReport> report = publish_to(path, model, *map, options);
        if (!report) return fail(report.error());
        return std::move(report->manifest);
    }
    Result<Manifest> manifest = load_manifest(path);
    if (!manifest) return manifest;
    if (Status same = matches(*manifest, *map); !same) {
        return fail(same.error().within(fmt::format("{}: is not this model's (publish it again)", path.string())));
    }
    return manifest;
}

Result<PublishedFile> open_file(const std::filesystem::path& path, const ManifestFile& listed, std::string_view tag) {
    Result<File> file = File::open(path);
    if (!file) return fail(file.error());
    struct stat status {};
    if (::fstat(file->descriptor(), &status) != 0) {
        return fail(ErrorKind::io, "{}: cannot examine: {}", path.string(), std::strerror(errno));
    }
    const auto size = static_cast<std::uint64_t>(status.st_size);
    if (size != listed.size) {
        return fail(ErrorKind::invalid, "{}: has {} bytes, its manifest says {} (publish it again)", path.string(),
                    size, listed.size);
    }
    PublishedFile published;
    published.changed_ns = std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
    published.content.file = std::make_shared<const File>(std::move(*file));
    published.content.size = size;
    published.content.etag = fmt::format("\"{}-{:x}-{:x}\"", tag, size, published.changed_ns);
    return published;
}

Result<std::vector<PublishedFile>> open_files(const GgufModel& model, const Manifest& manifest, const Digest& id) {
    if (model.files().size() != manifest.files.size()) {
        return fail(ErrorKind::invalid, "{}: {} files, its manifest has {} (publish it again)",
                    model.files().front().path.string(), model.files().size(), manifest.files.size());
    }
    std::vector<PublishedFile> files;
    for (std::size_t i = 0; i < manifest.files.size(); ++i) {
        const std::string tag = fmt::format("{}-{}", to_hex(id).substr(0, 16), i);
        Result<PublishedFile> file = open_file(model.files()[i].path, manifest.files[i], tag);
        if (!file) return fail(file.error());
        files.push_back(std::move(*file));
    }
    return files;
}

Status add_mirrors(Manifest& manifest, const std::vector<std::string>& mirrors) {
    for (const std::string& mirror : mirrors) {
        Result<http::Url> url = http::parse_url(mirror);
        if (!url) return fail(url.error().within("mirror"));
        if (std::ranges::find(manifest.mirrors, mirror) == manifest.mirrors.end()) manifest.mirrors.push_back(mirror);
    }
    if (manifest.mirrors.size() <= kMaxManifestMirrors) return {};
    return fail(ErrorKind::usage, "{} mirrors, at most {} are allowed", manifest.mirrors.size(), kMaxManifestMirrors);
}

nlohmann::ordered_json describe(const PublishedModel& model) {
    std::uint64_t experts = 0;
    std::uint64_t bytes = 0;
    for (const ManifestLayer& layer : model.manifest.layers) {
        experts += layer.experts;
        for (const ManifestTensor& tensor : layer.tensors)
            bytes += tensor.slab_bytes * layer.experts;
    }
    nlohmann::ordered_json files = nlohmann::ordered_json::array();
    for (const ManifestFile& file : model.manifest.files)
        files.push_back({{"name", file.name}, {"size", file.size}});
    return {{"id", to_hex(model.id)},
            {"name", model.manifest.name},
            {"architecture", model.manifest.architecture},
            {"layers", model.manifest.layers.size()},
            {"experts", experts},
            {"expert_bytes", bytes},
            {"files", std::move(files)},
            {"files_here", !model.files.empty()},
            {"mirrors", model.manifest.mirrors}};
}

}  // namespace

Status Catalogue::add(const std::filesystem::path& path, const PublishSettings& settings) {
    PublishedModel published;
    std::optional<GgufModel> model;
    if (path.extension() == ".json") {
        Result<Manifest> manifest = load_manifest(path);
        if (!manifest) return fail(manifest.error());
        published.manifest = std::move(*manifest);
    } else {
        Result<GgufModel> opened = GgufModel::open(path);
        if (!opened) return fail(opened.error());
        model = std::move(*opened);
        Result<Manifest> manifest = manifest_of(*model, settings);
        if (!manifest) return fail(manifest.error());
        published.manifest = std::move(*manifest);
    }
    if (Status added = add_mirrors(published.manifest, settings.mirrors); !added) return added;
    published.id = published.manifest.model_id();
    if (find(published.id) != nullptr) {
        return fail(ErrorKind::usage, "{}: model {} is published already", path.string(), to_hex(published.id));
    }
    if (model) {
        Result<std::vector<PublishedFile>> files = open_files(*model, published.manifest, published.id);
        if (!files) return fail(files.error());
        published.files = std::move(*files);
    } else if (published.manifest.mirrors.empty()) {
        return fail(ErrorKind::usage, "{}: a manifest without its model needs a mirror that has the bytes (--mirror)",
                    path.string());
    }
    published.json = std::make_shared<const std::string>(kvasir::to_json(published.manifest));
    const Digest digest = sha256(std::as_bytes(std::span(*published.json)));
    published.etag = fmt::format("\"{}\"", to_hex(digest).substr(0, 32));
    models_.push_back(std::move(published));
    return {};
}

const PublishedModel* Catalogue::find(const Digest& id) const {
    const auto found = std::ranges::find(models_, id, &PublishedModel::id);
    return found == models_.end() ? nullptr : &*found;
}

std::string Catalogue::to_json() const {
    nlohmann::ordered_json models = nlohmann::ordered_json::array();
    for (const PublishedModel& model : models_)
        models.push_back(describe(model));
    const nlohmann::ordered_json json = {{"models", std::move(models)}};
    return json.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace kvasir::hub
