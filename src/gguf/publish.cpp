#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <optional>

#include "gguf/manifest.h"
#include "gguf/publish_journal.h"
#include "gguf/slab_hash.h"

namespace kvasir {
namespace {

// One slab to hash: where it is, and where its digest goes.
struct Slab {
    std::uint32_t file = 0;
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
    Digest* digest = nullptr;
    bool known = false;
};

// General names are shown, never compared: long ones are cut.
std::string short_name(std::string name) {
    constexpr std::size_t kLongest = 200;
    if (name.size() > kLongest) name.resize(kLongest);
    return name;
}

ManifestLayer empty_layer(const ExpertLayer& layer) {
    ManifestLayer listed{layer.layer, layer.experts, layer.hidden, layer.ff, layer.recipe, {}};
    for (const ExpertTensor& tensor : layer.tensors) {
        const TensorInfo& info = tensor.info;
        listed.tensors.push_back({tensor.role, info.name, info.type, info.shape, info.file, info.offset,
                                  tensor.slab_bytes, std::vector<Digest>(layer.experts)});
    }
    std::ranges::sort(listed.tensors, {}, &ManifestTensor::role);
    return listed;
}

// The manifest with all digests zero.
Manifest empty_manifest(const GgufModel& model, const ExpertMap& map) {
    Manifest manifest;
    manifest.architecture = map.architecture;
    manifest.name = short_name(map.name);
    manifest.block_count = map.block_count;
    manifest.experts_used = map.experts_used;
    for (const ModelFile& file : model.files()) {
        manifest.files.push_back({file.path.filename().string(), file.size});
    }
    for (const ExpertLayer& layer : map.layers)
        manifest.layers.push_back(empty_layer(layer));
    return manifest;
}

// In manifest order: a slab's index here is its number in the journal.
std::vector<Slab> list_slabs(Manifest& manifest) {
    std::vector<Slab> slabs;
    for (ManifestLayer& layer : manifest.layers) {
        for (ManifestTensor& tensor : layer.tensors) {
            for (std::uint32_t expert = 0; expert < layer.experts; ++expert) {
                slabs.push_back({tensor.file, tensor.offset + expert * tensor.slab_bytes, tensor.slab_bytes,
                                 &tensor.slabs[expert]});
            }
        }
    }
    return slabs;
}

// Stands for the files' names, sizes and times and for where the slabs are in them.
Result<Digest> fingerprint(const GgufModel& model, const std::vector<Slab>& slabs) {
    ByteWriter writer;
    for (const ModelFile& file : model.files()) {
        struct stat status {};
        if (::stat(file.path.c_str(), &status) != 0) {
            return fail(ErrorKind::io, "{}: cannot examine: {}", file.path.string(), std::strerror(errno));
        }
        writer.write_string<std::uint32_t>(file.path.filename().string());
        writer.write<std::int64_t>(status.st_size);
        writer.write<std::int64_t>(status.st_mtim.tv_sec);
        writer.write<std::int64_t>(status.st_mtim.tv_nsec);
    }
    for (const Slab& slab : slabs) {
        writer.write(slab.file);
        writer.write(slab.offset);
        writer.write(slab.bytes);
    }
    return sha256(writer.buffer());
}

Status check_publishable(const GgufModel& model, const ExpertMap& map) {
    const std::filesystem::path& path = model.files().front().path;
    if (model.metadata().contains("kvasir.slice.version")) {
        return fail(ErrorKind::unsupported, "{}: is a slice; publish the model it was cut from", path.string());
    }
    if (map.layers.empty()) {
        return fail(ErrorKind::unsupported, "{}: a dense model, there are no routed experts to publish", path.string());
    }
    if (!model.complete()) {
        return fail(ErrorKind::invalid, "{}: only a header, the tensor data is missing", path.string());
    }
    auto printable = [](unsigned char c) { return c > ' ' && c < 0x7F; };
    if (map.architecture.empty() || !std::ranges::all_of(map.architecture, printable)) {
        return fail(ErrorKind::invalid, "{}: general.architecture is not a plain name", path.string());
    }
    std::uint64_t slabs = 0;
    for (const ExpertLayer& layer : map.layers)
        slabs += std::uint64_t{layer.experts} * layer.tensors.size();
    if (slabs > kMaxManifestSlabs) {
        return fail(ErrorKind::unsupported, "{}: {} slabs, a manifest holds at most {}", path.string(), slabs,
                    kMaxManifestSlabs);
    }
    return {};
}

Result<std::vector<File>> open_files(const GgufModel& model) {
    std::vector<File> files;
    for (const ModelFile& file : model.files()) {
        Result<File> opened = File::open(file.path);
        if (!opened) return fail(opened.error());
        files.push_back(std::move(*opened));
    }
    return files;
}

// What is left to do, in file order, so that a disk reads forward.
std::vector<std::uint32_t> remaining_slabs(const std::vector<Slab>& slabs) {
    std::vector<std::uint32_t> order;
    for (std::uint32_t i = 0; i < slabs.size(); ++i) {
        if (!slabs[i].known) order.push_back(i);
    }
    std::ranges::sort(order, {}, [&](std::uint32_t i) { return std::pair(slabs[i].file, slabs[i].offset); });
    return order;
}

Result<HashStats> hash_remaining(const GgufModel& model, const std::vector<Slab>& slabs, PublishJournal* journal,
                                 const PublishOptions& options) {
    Result<std::vector<File>> files = open_files(model);
    if (!files) return fail(files.error());
    std::vector<std::uint32_t> order = remaining_slabs(slabs);
    std::vector<HashJob> jobs;
    std::uint64_t total = 0;
    for (std::uint32_t i : order) {
        std::uint32_t file = slabs[i].file;
        jobs.push_back({&(*files)[file], &model.files()[file].path, slabs[i].offset, slabs[i].bytes});
        total += slabs[i].bytes;
    }
    Progress progress("hashing", total, ProgressUnit::bytes, options.quiet);
    auto keep = [&](std::size_t job, const Digest& digest) -> Status {
        *slabs[order[job]].digest = digest;
        return journal == nullptr ? Status{} : journal->append(order[job], digest);
    };
    return hash_all(jobs, options.threads, progress, keep, options.cancel);
}

// A manifest may replace a manifest (or whatever else is JSON), not a model that somebody named by mistake.
Status may_be_replaced(const std::filesystem::path& out) {
    std::error_code ignored;
    if (!std::filesystem::exists(out, ignored) || std::filesystem::file_size(out, ignored) == 0) return {};
    Result<File> file = File::open(out);
    if (!file) return fail(file.error());
    std::byte first{};
    if (Status read = file->read_at(0, std::span(&first, 1)); !read) return fail(read.error().within(out.string()));
    if (first == std::byte{'{'}) return {};
    return fail(ErrorKind::usage, "{}: exists and is no manifest; name another file to write", out.string());
}

}  // namespace

Result<PublishReport> publish(const GgufModel& model, const ExpertMap& map, const PublishOptions& options) {
    auto start = std::chrono::steady_clock::now();
    if (Status fit = check_publishable(model, map); !fit) return fail(fit.error());
    PublishReport report;
    report.manifest = empty_manifest(model, map);
    std::vector<Slab> slabs = list_slabs(report.manifest);
    Result<Digest> before = fingerprint(model, slabs);
    if (!before) return fail(before.error());

    std::optional<PublishJournal> journal;
    if (!options.journal.empty()) {
        auto restore = [&](std::uint32_t slab, const Digest& digest) {
            if (slab >= slabs.size() || slabs[slab].known) return;
            slabs[slab].known = true;
            *slabs[slab].digest = digest;
            report.resumed_bytes += slabs[slab].bytes;
        };
        Result<PublishJournal> opened = PublishJournal::open(options.journal, *before, restore);
        if (!opened) return fail(opened.error());
        journal = std::move(*opened);
    }
    Result<HashStats> stats = hash_remaining(model, slabs, journal ? &*journal : nullptr, options);
    if (!stats) return fail(stats.error());

    Result<Digest> after = fingerprint(model, slabs);
    if (!after) return fail(after.error());
    if (*after != *before) {
        return fail(ErrorKind::invalid, "{}: was changed while it was being hashed; publish it again",
                    model.files().front().path.string());
    }
    report.hashed_bytes = stats->bytes;
    report.cpu_seconds = stats->cpu_seconds;
    report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return report;
}

Result<PublishReport> publish_to(const std::filesystem::path& out, const GgufModel& model, const ExpertMap& map,
                                 PublishOptions options) {
    if (std::filesystem::is_directory(out)) {
        return fail(ErrorKind::usage, "{}: is a directory; name a file to write", out.string());
    }
    if (Status there = check_directory_of(out); !there) return fail(there.error());
    if (Status replaceable = may_be_replaced(out); !replaceable) return fail(replaceable.error());
    options.journal = out;
    options.journal += ".part";
    Result<PublishReport> report = publish(model, map, options);
    if (!report) return report;
    if (Status written = write_text_file(out, to_json(report->manifest)); !written) return fail(written.error());
    std::error_code ignored;  // a journal left behind costs nothing but its few bytes
    std::filesystem::remove(options.journal, ignored);
    return report;
}

}  // namespace kvasir
