// Computes pairs with ggml's MUL_MAT_ID on plain (not repacked) weights: its kernels take one row at a time, so a
// pair's bits do not depend on its company. (The IQ grid types need select_exact_kernels() for that.)
//
// A call that fits the scratch_ memory is one graph. A larger one is cut into chunks of pairs sorted by expert, so that
// each expert's weights are still read once or twice, not once per chunk.
#include "expert/ggml_engine.h"

#include <algorithm>
#include <vector>

#include "expert/graph.h"
#include "expert/pair_groups.h"

namespace kvasir {

namespace {

// Of intermediate results_; bounds the memory of a call of any size.
constexpr std::uint64_t kScratchBytes = std::uint64_t{8} << 20;

std::uint64_t bytes_per_pair(const LayerWeights& weights) {
    // The gathered_ row, the output, and at most six inner rows (see GraphBuilder), a third more for quantised copies,
    // and MUL_MAT_ID's table of who wants which expert.
    return (2 * weights.hidden + 6 * weights.ff) * sizeof(float) * 4 / 3 + 8ULL * weights.experts;
}

// How many consecutive pairs each row has, where all have equally many and rows come in order_; otherwise 0.
std::size_t uniform_slots(std::size_t rows, std::span<const Pair> pairs) {
    if (rows == 0 || pairs.size() % rows != 0) return 0;
    const std::size_t slots = pairs.size() / rows;
    for (std::size_t i = 0; i < pairs.size(); ++i) {
        if (pairs[i].row != i / slots) return 0;
    }
    return slots;
}

class GgmlEngine final : public Engine {
  public:
    explicit GgmlEngine(std::unique_ptr<Team> team) : Engine(Arithmetic::ggml_cpu), team_(std::move(team)) {}

  private:
    Status compute_checked(const LayerWeights& weights, const Recipe& recipe, ByteSpan rows,
                           std::span<const Pair> pairs, std::span<std::byte> out) override;
    Status run(const LayerWeights& weights, const Recipe& recipe, const Batch& batch);
    Status compute_whole(const LayerWeights& weights, const Recipe& recipe, std::span<const float> rows,
                         std::span<const Pair> pairs, float* out);
    Status compute_chunked(const LayerWeights& weights, const Recipe& recipe, std::span<const float> rows,
                           std::span<const Pair> pairs, std::size_t chunk, float* out);

    const std::unique_ptr<Team> team_;
    GraphBuilder builder_;
    // All of these keep their memory from call to call.
    ByteVector scratch_;
    std::vector<std::int32_t> ids_;
    std::vector<float> gathered_;
    std::vector<float> results_;
    std::vector<std::uint32_t> order_;
};

Status GgmlEngine::compute_checked(const LayerWeights& weights, const Recipe& recipe, ByteSpan rows,
                                   std::span<const Pair> pairs, std::span<std::byte> out) {
    const std::span<const float> floats(reinterpret_cast<const float*>(rows.data()), rows.size() / sizeof(float));
    auto* results_begin = reinterpret_cast<float*>(out.data());
    const std::uint64_t chunk = std::max<std::uint64_t>(1, kScratchBytes / bytes_per_pair(weights));
    if (pairs.size() <= chunk) return compute_whole(weights, recipe, floats, pairs, results_begin);
    return compute_chunked(weights, recipe, floats, pairs, chunk, results_begin);
}

Status GgmlEngine::run(const LayerWeights& weights, const Recipe& recipe, const Batch& batch) {
    ggml_cgraph* graph = builder_.build(weights, recipe, batch, scratch_);
    const std::uint64_t matrices = recipe.gated ? 3 : 2;
    return team_->run(graph, static_cast<std::uint64_t>(batch.pairs()) * matrices * weights.hidden * weights.ff);
}

Status GgmlEngine::compute_whole(const LayerWeights& weights, const Recipe& recipe, std::span<const float> rows,
                                 std::span<const Pair> pairs, float* out) {
    ids_.resize(pairs.size());
    std::ranges::transform(pairs, ids_.begin(),
                           [](const Pair& pair) { return static_cast<std::int32_t>(pair.expert); });
    const std::size_t row_count = rows.size() / weights.hidden;
    const std::size_t slots = uniform_slots(row_count, pairs);
    if (slots > 0) {
        return run(
            weights, recipe,
            {static_cast<std::int64_t>(slots), static_cast<std::int64_t>(row_count), rows.data(), ids_.data(), out});
    }
    gathered_.resize(pairs.size() * weights.hidden);
    for (std::size_t i = 0; i < pairs.size(); ++i) {
        std::ranges::copy(rows.subspan(pairs[i].row * weights.hidden, weights.hidden),
                          gathered_.begin() + static_cast<std::ptrdiff_t>(i * weights.hidden));
    }
    return run(weights, recipe, {1, static_cast<std::int64_t>(pairs.size()), gathered_.data(), ids_.data(), out});
}

Status GgmlEngine::compute_chunked(const LayerWeights& weights, const Recipe& recipe, std::span<const float> rows,
                                   std::span<const Pair> pairs, std::size_t chunk, float* out) {
    const std::size_t hidden = weights.hidden;
    order_by_expert(pairs, order_);
    ids_.resize(chunk);
    gathered_.resize(chunk * hidden);
    results_.resize(chunk * hidden);
    for (std::size_t first = 0; first < pairs.size(); first += chunk) {
        const std::span<const std::uint32_t> indices =
            std::span(order_).subspan(first, std::min(chunk, pairs.size() - first));
        for (std::size_t i = 0; i < indices.size(); ++i) {
            const Pair& pair = pairs[indices[i]];
            ids_[i] = static_cast<std::int32_t>(pair.expert);
            std::ranges::copy(rows.subspan(pair.row * hidden, hidden), gathered_.data() + i * hidden);
        }
        Status status =
            run(weights, recipe,
                {1, static_cast<std::int64_t>(indices.size()), gathered_.data(), ids_.data(), results_.data()});
        if (!status) return status;
        for (std::size_t i = 0; i < indices.size(); ++i) {
            std::ranges::copy(std::span(results_).subspan(i * hidden, hidden), out + indices[i] * hidden);
        }
    }
    return {};
}

}  // namespace

std::unique_ptr<Engine> make_ggml_engine(std::unique_ptr<Team> team) {
    return std::make_unique<GgmlEngine>(std::move(team));
}

}  // namespace kvasir
