#include <fcntl.h>
#include <unistd.h>

#include <chrono>

#include "base/files.h"
#include "base/interrupt.h"
#include "base/temp_directory.h"
#include "base/units.h"
#include "bench/bench.h"
#include "gguf/slice.h"

namespace kvasir {
namespace {

using std::chrono::steady_clock;

double seconds_since(steady_clock::time_point start) {
    return std::chrono::duration<double>(steady_clock::now() - start).count();
}

// Beside the model: on the same file system, as `cp` would be used.
std::filesystem::path scratch(const std::filesystem::path& model, const char* name) {
    return model.parent_path() / fmt::format("{}.bench-{}-{}", model.filename().string(), ::getpid(), name);
}

}  // namespace

Result<BenchReport> bench_slice(const std::filesystem::path& model_path) {
    Result<GgufModel> model = GgufModel::open(model_path);
    if (!model) return fail(model.error());
    Result<ExpertMap> map = map_experts(*model);
    if (!map) return fail(map.error());
    if (map->layers.empty())
        return fail(ErrorKind::unsupported, "{}: a dense model, there are no experts to slice", model_path.string());
    std::vector<Piece> pieces;
    for (const ExpertLayer& layer : map->layers)
        pieces.push_back({layer.layer, 0, layer.experts});
    BenchReport report;
    report.title = fmt::format("slice: all experts of {}", model_path.filename().string());
    double slice_speed = 0;
    double copy_speed = 0;
    // Twice in turn: the first pass also fills the page cache for both.
    for (int round = 0; round < 2; ++round) {
        if (interrupted()) return fail(ErrorKind::unavailable, "interrupted");
        std::filesystem::path out = scratch(model_path, "slice");
        auto start = steady_clock::now();
        Result<SliceReport> slice = write_slice(*model, *map, nullptr, pieces, out, true, &interruption());
        double seconds = seconds_since(start);
        std::error_code ignored;
        std::filesystem::remove(out, ignored);
        if (!slice) return fail(slice.error());
        slice_speed = static_cast<double>(slice->bytes) / seconds;

        Result<File> source = File::open(model_path);
        if (!source) return fail(source.error());
        start = steady_clock::now();
        std::uint64_t size = std::filesystem::file_size(model_path);
        Result<AtomicFile> copy = AtomicFile::create(scratch(model_path, "copy"));
        if (!copy) return fail(copy.error());
        if (Status copied = copy->append_from(*source, 0, size); !copied) return fail(copied.error());
        if (::fsync(copy->descriptor()) != 0) return fail(ErrorKind::io, "cannot sync the copy");
        copy_speed = static_cast<double>(size) / seconds_since(start);
    }
    report.add("slice_gb_s", "slice (copied, read back, hashed, synced)", slice_speed / 1e9, "GB/s");
    report.add("copy_gb_s", "plain copy, synced", copy_speed / 1e9, "GB/s");
    report.add("ratio_to_copy", "slice / copy", slice_speed / copy_speed, "x");
    return report;
}

}  // namespace kvasir
