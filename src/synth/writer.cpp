#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>

#include "base/files.h"
#include "base/progress.h"
#include "base/units.h"
#include "synth/fill.h"
#include "synth/synth.h"

namespace kvasir {
namespace synth {
namespace {

namespace fs = std::filesystem;

// One file of the model: some of its tensors, in order, and where their data goes.
struct Part {
    fs::path path;
    std::size_t first = 0;  // tensor
    std::size_t last = 0;   // past the end
    ByteVector header;      // padded to where the data begins
    std::vector<std::uint64_t> offsets;
    std::uint64_t size = 0;  // of the complete file
};

struct GgmlDeleter {
    void operator()(ggml_context* context) const { ggml_free(context); }
};

void add_tensor_infos(gguf_context* gguf, std::span<const TensorPlan> tensors) {
    const ggml_init_params params{ggml_tensor_overhead() * (tensors.size() + 1), nullptr, true};
    std::unique_ptr<ggml_context, GgmlDeleter> ggml(ggml_init(params));
    for (const TensorPlan& plan : tensors) {
        ggml_tensor* tensor =
            ggml_new_tensor(ggml.get(), plan.type, static_cast<int>(plan.shape.size()), plan.shape.data());
        ggml_set_name(tensor, plan.name.c_str());
        gguf_add_tensor(gguf, tensor);
    }
}

// Lays out one file: its header, and the offset of each tensor in it.
void lay_out(Part& part, gguf_context* gguf, std::span<const TensorPlan> all, bool header_only) {
    const auto tensors = all.subspan(part.first, part.last - part.first);
    add_tensor_infos(gguf, tensors);
    part.header.resize(gguf_get_meta_size(gguf));
    gguf_get_meta_data(gguf, part.header.data());
    part.size = part.header.size();
    if (header_only) return;
    for (std::size_t index = 0; index < tensors.size(); ++index) {
        const std::size_t within = gguf_get_tensor_offset(gguf, static_cast<std::int64_t>(index));
        part.offsets.push_back(part.header.size() + within);
        part.size = part.header.size() + within + GGML_PAD(tensors[index].bytes(), gguf_get_alignment(gguf));
    }
}

fs::path split_path(const fs::path& out, std::uint32_t number, std::uint32_t count) {
    if (count == 1) return out;
    fs::path stem = out;
    if (stem.extension() == ".gguf") stem.replace_extension();
    return fmt::format("{}-{:05}-of-{:05}.gguf", stem.string(), number + 1, count);
}

// Tensors are dealt to the files in order, about the same number of bytes to each, and at least one.
std::vector<Part> deal(const ModelPlan& plan, const fs::path& out, std::uint32_t count) {
    std::vector<Part> parts(count);
    const std::uint64_t share = plan.bytes() / count + 1;
    std::size_t next = 0;
    for (std::uint32_t number = 0; number < count; ++number) {
        Part& part = parts[number];
        part.path = split_path(out, number, count);
        part.first = next;
        const std::size_t latest = plan.tensors.size() - (count - 1 - number);
        std::uint64_t bytes = 0;
        while (next < latest && (next == part.first || number + 1 == count || bytes < share)) {
            bytes += plan.tensors[next++].bytes();
        }
        part.last = next;
    }
    return parts;
}

void set_split_keys(gguf_context* gguf, std::uint32_t number, std::uint32_t count, std::size_t tensors) {
    gguf_set_val_u16(gguf, "split.no", static_cast<std::uint16_t>(number));
    gguf_set_val_u16(gguf, "split.count", static_cast<std::uint16_t>(count));
    gguf_set_val_i32(gguf, "split.tensors.count", static_cast<std::int32_t>(tensors));
}

std::vector<Part> lay_out_parts(ModelPlan& plan, const fs::path& out, std::uint32_t splits, bool header_only) {
    std::vector<Part> parts = deal(plan, out, splits);
    if (header_only) gguf_set_val_bool(plan.metadata.get(), "kvasir.header_only", true);
    for (std::uint32_t number = 0; number < splits; ++number) {
        GgufHandle bare(gguf_init_empty());
        gguf_context* gguf = number == 0 ? plan.metadata.get() : bare.get();
        if (splits > 1) set_split_keys(gguf, number, splits, plan.tensors.size());
        lay_out(parts[number], gguf, plan.tensors, header_only);
    }
    return parts;
}

Status check_space(const fs::path& out, std::uint64_t needed) {
    if (Status there = check_directory_of(out); !there) return there;
    const fs::path directory = out.has_parent_path() ? out.parent_path() : fs::path(".");
    std::error_code error;
    const fs::space_info space = fs::space(directory, error);
    if (error) return fail(ErrorKind::io, "{}: {}", directory.string(), error.message());
    if (space.available >= needed) return {};
    return fail(ErrorKind::io, "{}: {} needed, {} free", directory.string(), human_bytes(needed),
                human_bytes(space.available));
}

Status write_at(int descriptor, std::uint64_t offset, ByteSpan bytes) {
    while (!bytes.empty()) {
        const ssize_t written = ::pwrite(descriptor, bytes.data(), bytes.size(), static_cast<off_t>(offset));
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return fail(ErrorKind::io, "write: {}", std::strerror(errno));
        offset += static_cast<std::uint64_t>(written);
        bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
    return {};
}

// Makes all units on several threads and writes each where it belongs.
class DataWriter {
  public:
    DataWriter(const ModelPlan& plan, const Filler& filler, std::span<const Part> parts,
               std::span<const AtomicFile> files, const std::atomic<bool>* cancel)
        : plan_(plan),
          filler_(filler),
          parts_(parts),
          files_(files),
          cancel_(cancel),
          units_(cut_into_units(plan.tensors)) {}

    Status run(unsigned threads, Progress& progress) {
        std::vector<std::jthread> workers;
        running_ = threads;
        for (unsigned count = 0; count < threads; ++count)
            workers.emplace_back([this] { work(); });
        show(progress);
        workers.clear();
        if (error_) return fail(*error_);
        return {};
    }

  private:
    void work() {
        ByteVector buffer;
        for (std::size_t index = next_++; index < units_.size(); index = next_++) {
            if (cancel_ != nullptr && *cancel_) {
                const std::lock_guard lock(mutex_);
                error_ = Error{ErrorKind::unavailable, "interrupted"};
                break;
            }
            const Unit& unit = units_[index];
            const TensorPlan& tensor = plan_.tensors[unit.tensor];
            buffer.resize(tensor.row_bytes() * static_cast<std::uint64_t>(unit.rows));
            filler_.fill(unit, buffer);
            Status written = write(unit, buffer);
            const std::lock_guard lock(mutex_);
            done_ += buffer.size();
            if (!written && !error_) error_ = written.error();
            if (error_) break;
        }
        const std::lock_guard lock(mutex_);
        --running_;
        changed_.notify_all();
    }

    Status write(const Unit& unit, ByteSpan bytes) const {
        std::size_t number = 0;
        while (unit.tensor >= parts_[number].last)
            ++number;
        const Part& part = parts_[number];
        const std::uint64_t within =
            plan_.tensors[unit.tensor].row_bytes() * static_cast<std::uint64_t>(unit.first_row);
        Status written = write_at(files_[number].descriptor(), part.offsets[unit.tensor - part.first] + within, bytes);
        if (!written) return fail(written.error().within(part.path.string()));
        return {};
    }

    void show(Progress& progress) {
        std::unique_lock lock(mutex_);
        std::uint64_t shown = 0;
        while (running_ > 0) {
            changed_.wait_for(lock, std::chrono::milliseconds(100));
            progress.add(done_ - shown);
            shown = done_;
        }
    }

    const ModelPlan& plan_;
    const Filler& filler_;
    std::span<const Part> parts_;
    std::span<const AtomicFile> files_;
    const std::atomic<bool>* cancel_;
    const std::vector<Unit> units_;
    std::atomic<std::size_t> next_ = 0;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::uint64_t done_ = 0;
    unsigned running_ = 0;
    std::optional<Error> error_;
};

unsigned thread_count(int asked) {
    return asked > 0 ? static_cast<unsigned>(asked) : std::max(1U, std::thread::hardware_concurrency());
}

Status check_options(const SynthOptions& options, std::size_t tensors) {
    if (options.splits < 1 || options.splits > tensors) {
        return fail(ErrorKind::usage, "--splits is {}; it must be from 1 to the {} tensors there are", options.splits,
                    tensors);
    }
    return {};
}

}  // namespace
}  // namespace synth

Result<SynthReport> synthesize(const SynthSpec& spec, const std::filesystem::path& out, const SynthOptions& options) {
    using namespace synth;
    const auto start = std::chrono::steady_clock::now();
    Result<ModelPlan> plan = plan_model(spec);
    if (!plan) return fail(plan.error());
    if (Status fine = check_options(options, plan->tensors.size()); !fine) return fail(fine.error());

    SynthReport report;
    const std::vector<Part> parts = lay_out_parts(*plan, out, options.splits, spec.header_only);
    for (const Part& part : parts)
        report.bytes += part.size;
    report.model_bytes = plan->bytes();
    if (Status fits = check_space(out, report.bytes); !fits) return fail(fits.error());

    std::vector<AtomicFile> files;
    for (const Part& part : parts) {
        Result<AtomicFile> file = AtomicFile::create(part.path);
        if (!file) return fail(file.error());
        if (Status written = file->append(part.header); !written) return fail(written.error());
        if (::ftruncate(file->descriptor(), static_cast<off_t>(part.size)) != 0) {
            return fail(ErrorKind::io, "{}: {}", part.path.string(), std::strerror(errno));
        }
        files.push_back(std::move(*file));
    }
    if (!spec.header_only) {
        const Filler filler(spec.seed, plan->tensors);
        Progress progress("synth", report.model_bytes, ProgressUnit::bytes, options.quiet);
        Status written =
            DataWriter(*plan, filler, parts, files, options.cancel).run(thread_count(options.threads), progress);
        if (!written) return fail(written.error());
        progress.finish();
    }
    for (std::size_t number = 0; number < files.size(); ++number) {
        if (Status committed = files[number].commit(); !committed) return fail(committed.error());
        report.files.push_back(parts[number].path);
    }
    report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return report;
}

}  // namespace kvasir
