#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

#include "base/units.h"
#include "gguf/slice.h"
#include "gguf/slice_contents.h"

namespace kvasir {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

Status check_piece(const ExpertMap& map, const Piece& piece) {
    const ExpertLayer* layer = map.find(piece.layer);
    if (layer == nullptr) {
        return fail(ErrorKind::usage, "layer {} does not exist or has no routed experts", piece.layer);
    }
    if (std::uint64_t{piece.first} + piece.count > layer->experts) {
        return fail(ErrorKind::usage, "layer {} has no experts {}-{}: its experts are 0-{}", piece.layer, piece.first,
                    std::uint64_t{piece.first} + piece.count - 1, layer->experts - 1);
    }
    constexpr std::uint64_t kWidest = 0xFFFFFFFF;
    if (layer->hidden > kWidest || layer->ff > kWidest) {
        return fail(ErrorKind::unsupported, "layer {}: experts of {} x {} are too wide for a slice", piece.layer,
                    layer->hidden, layer->ff);
    }
    return {};
}

Status check_source(const GgufModel& model, const ExpertMap& map, const Manifest* manifest,
                    const std::vector<Piece>& pieces) {
    std::string path = model.files().front().path.string();
    if (is_slice(model)) return fail(ErrorKind::unsupported, "{}: is a slice itself; cut from the whole model", path);
    if (!model.complete()) {
        return fail(ErrorKind::invalid, "{}: truncated, not all tensors are in the file; get it again", path);
    }
    for (const Piece& piece : pieces) {
        if (Status fit = check_piece(map, piece); !fit) return fail(fit.error().within(path));
    }
    if (manifest == nullptr) return {};
    if (Status same = matches(*manifest, map); !same) {
        return fail(same.error().within(fmt::format("{}: the manifest is not this model's", path)));
    }
    return {};
}

Status check_target(const GgufModel& model, const std::filesystem::path& out, std::uint64_t bytes) {
    std::filesystem::path directory = out.has_parent_path() ? out.parent_path() : ".";
    std::error_code error;
    if (Status there = check_directory_of(out); !there) return there;
    if (!out.has_filename() || std::filesystem::is_directory(out, error)) {
        return fail(ErrorKind::usage, "{}: is a directory; name a file to write", out.string());
    }
    for (const ModelFile& file : model.files()) {
        if (std::filesystem::equivalent(out, file.path, error)) {
            return fail(ErrorKind::usage, "{}: is the model itself; choose another output", out.string());
        }
    }
    std::filesystem::space_info space = std::filesystem::space(directory, error);
    if (!error && space.available < bytes) {
        return fail(ErrorKind::io, "{}: {} are needed, {} are free on that disk", out.string(), human_bytes(bytes),
                    human_bytes(space.available));
    }
    return {};
}

Result<std::vector<File>> open_sources(const GgufModel& model) {
    std::vector<File> files;
    for (const ModelFile& source : model.files()) {
        Result<File> file = File::open(source.path);
        if (!file) return fail(file.error());
        files.push_back(std::move(*file));
    }
    return files;
}

// Steps small enough for progress and for an end soon after `cancel`.
Status copy_range(AtomicFile& target, const File& source, const TensorInfo& range, Progress& progress,
                  const std::atomic<bool>* cancel) {
    constexpr std::uint64_t kStep = std::uint64_t{64} << 20;
    for (std::uint64_t done = 0; done < range.bytes;) {
        if (cancel != nullptr && *cancel) return fail(ErrorKind::unavailable, "interrupted, nothing was written");
        std::uint64_t step = std::min(kStep, range.bytes - done);
        if (Status copied = target.append_from(source, range.offset + done, step); !copied) return copied;
        done += step;
        progress.add(step);
    }
    return target.pad_to(kSliceAlignment);
}

Status copy_slabs(const GgufModel& model, const SliceContents& contents, std::uint64_t slab_bytes, AtomicFile& target,
                  bool quiet, const std::atomic<bool>* cancel) {
    Result<std::vector<File>> sources = open_sources(model);
    if (!sources) return fail(sources.error());
    Progress progress("copying", slab_bytes, ProgressUnit::bytes, quiet);
    for (const SlicePiece& part : contents.pieces) {
        for (const ExpertTensor& tensor : part.layer.tensors) {
            const TensorInfo& info = tensor.info;
            Status copied = copy_range(target, (*sources)[info.file], info, progress, cancel);
            if (!copied) return fail(copied.error().within(model.files()[info.file].path.string()));
        }
    }
    return {};
}

// Reads back what was written. With known digests every slab must have its own; else they are learnt here.
Status verify(SliceContents& placed, const AtomicFile& target, std::uint64_t data_offset, bool quiet,
              const std::atomic<bool>* cancel) {
    std::vector<std::vector<SlabDigests>> learnt;
    for (const SlicePiece& part : placed.pieces) {
        learnt.emplace_back(part.layer.tensors.size(), SlabDigests(part.piece.count));
    }
    auto take = [&](const SlabPlace& place, const Digest& digest) -> Status {
        learnt[place.piece][place.tensor][place.expert] = digest;
        return compare_slab(placed, place, digest, "the copied data");
    };
    std::vector<std::filesystem::path> files = {target.contents_path()};
    Result<HashStats> hashed = hash_slabs(placed, files, data_offset, "verifying", quiet, take, cancel);
    if (!hashed) return fail(hashed.error());
    for (std::size_t i = 0; i < learnt.size(); ++i)
        placed.pieces[i].digests = std::move(learnt[i]);
    return {};
}

Status rewrite_header(const AtomicFile& target, ByteSpan header) {
    std::uint64_t offset = 0;
    while (!header.empty()) {
        ssize_t written = ::pwrite(target.descriptor(), header.data(), header.size(), static_cast<off_t>(offset));
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return fail(ErrorKind::io, "cannot write the header: {}", std::strerror(errno));
        offset += static_cast<std::uint64_t>(written);
        header = header.subspan(static_cast<std::size_t>(written));
    }
    return {};
}

}  // namespace

Result<SliceReport> write_slice(const GgufModel& model, const ExpertMap& map, const Manifest* manifest,
                                std::vector<Piece> pieces, const std::filesystem::path& out, bool quiet,
                                const std::atomic<bool>* cancel) {
    Clock::time_point start = Clock::now();
    if (Status fit = check_source(model, map, manifest, pieces); !fit) return fail(fit.error());
    pieces = normalized(std::move(pieces));
    if (pieces.empty() || pieces.size() > kMaxSlicePieces) {
        return fail(ErrorKind::usage, "{} pieces are selected; a slice holds 1 to {}", pieces.size(), kMaxSlicePieces);
    }
    SliceContents source = contents_of(map, manifest, pieces);
    SliceContents placed = placed_in_slice(source);
    ByteVector header = encode_slice_header(placed);
    SliceReport report;
    for (const SlicePiece& part : placed.pieces)
        report.slab_bytes += part.layer.expert_bytes() * part.piece.count;
    if (Status fit = check_target(model, out, header.size() + report.slab_bytes); !fit) return fail(fit.error());

    Result<AtomicFile> target = AtomicFile::create(out);
    if (!target) return fail(target.error());
    if (Status written = target->append(header); !written) return fail(written.error());
    Clock::time_point copying = Clock::now();
    Status copied = copy_slabs(model, source, report.slab_bytes, *target, quiet, cancel);
    if (!copied) return fail(copied.error());
    report.copy_seconds = seconds_since(copying);

    Clock::time_point verifying = Clock::now();
    if (Status good = verify(placed, *target, header.size(), quiet, cancel); !good) {
        return fail(good.error().within(model.files().front().path.string()));
    }
    if (manifest == nullptr) {
        if (Status written = rewrite_header(*target, encode_slice_header(placed)); !written) {
            return fail(written.error().within(out.string()));
        }
    }
    report.verify_seconds = seconds_since(verifying);
    report.verified = manifest != nullptr;
    report.bytes = target->size();
    if (Status done = target->commit(); !done) return fail(done.error());
    report.seconds = seconds_since(start);
    return report;
}

}  // namespace kvasir
