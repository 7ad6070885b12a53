// Computes pairs with ggml's MUL_MAT_ID on plain (not repacked) weights: its kernels take one row at a time, so a
// pair's bits do not depend on its company. (The IQ grid types need select_exact_kernels() for that.)
//
// A call that fits the scratch memory is one graph. A larger one is cut into chunks of pairs sorted by expert, so that
// each expert's weights are still read once or twice, not once per chunk.
#include "expert/engine.h"

#include <ggml-cpu.h>

#include <algorithm>
#include <numeric>

#include "expert/graph.h"

namespace kvasir {

namespace {

// Of intermediate results; bounds the memory of a call of any size.
constexpr std::uint64_t kScratchBytes = std::uint64_t{8} << 20;
constexpr int kLargestTeam = GGML_MAX_N_THREADS;
// Waking a team of threads and its barriers cost some 20 us; below this many multiplications one thread is faster.
constexpr std::uint64_t kTeamWork = 2'000'000;

std::uint64_t bytes_per_pair(const LayerWeights& weights) {
    // The gathered row, the output, and at most six inner rows (see GraphBuilder), a third more for quantised copies,
    // and MUL_MAT_ID's table of who wants which expert.
    return (2 * weights.hidden + 6 * weights.ff) * sizeof(float) * 4 / 3 + 8ULL * weights.experts;
}

// Either one thread or the whole team: OpenMP ends and restarts threads when a team's size changes.
int threads_for(std::uint64_t multiplications, int threads) {
    return multiplications < kTeamWork ? 1 : threads;
}

struct FreeThreadpool {
    void operator()(ggml_threadpool* pool) const { ggml_threadpool_free(pool); }
};

// How many consecutive pairs each row has, where all have equally many and rows come in order; otherwise 0.
std::size_t uniform_slots(std::size_t rows, std::span<const Pair> pairs) {
    if (rows == 0 || pairs.size() % rows != 0) return 0;
    const std::size_t slots = pairs.size() / rows;
    for (std::size_t i = 0; i < pairs.size(); ++i) {
        if (pairs[i].row != i / slots) return 0;
    }
    return slots;
}

}  // namespace

struct Engine::Implementation {
    int threads = 1;
    std::unique_ptr<ggml_threadpool, FreeThreadpool> pool;
    GraphBuilder builder;
    // All of these keep their memory from call to call.
    ByteVector scratch;
    std::vector<std::uint8_t> work;
    std::vector<std::int32_t> ids;
    std::vector<float> gathered;
    std::vector<float> results;
    std::vector<std::uint32_t> order;

    Status run(const LayerWeights& weights, const Recipe& recipe, const Batch& batch);
    Status compute_whole(const LayerWeights& weights, const Recipe& recipe, std::span<const float> rows,
                         std::span<const Pair> pairs, float* out);
    Status compute_chunked(const LayerWeights& weights, const Recipe& recipe, std::span<const float> rows,
                           std::span<const Pair> pairs, std::size_t chunk, float* out);
};

Status Engine::Implementation::run(const LayerWeights& weights, const Recipe& recipe, const Batch& batch) {
    ggml_cgraph* graph = builder.build(weights, recipe, batch, scratch);
    const std::uint64_t matrices = recipe.gated ? 3 : 2;
    const std::uint64_t multiplications =
        static_cast<std::uint64_t>(batch.pairs()) * matrices * weights.hidden * weights.ff;
    ggml_cplan plan = ggml_graph_plan(graph, threads_for(multiplications, threads), pool.get());
    if (work.size() < plan.work_size) work.resize(plan.work_size);
    plan.work_data = work.data();
    const ggml_status status = ggml_graph_compute(graph, &plan);
    if (status == GGML_STATUS_SUCCESS) return {};
    return fail(ErrorKind::internal, "ggml could not compute the graph: {}", ggml_status_to_string(status));
}

Status Engine::Implementation::compute_whole(const LayerWeights& weights, const Recipe& recipe,
                                             std::span<const float> rows, std::span<const Pair> pairs, float* out) {
    ids.resize(pairs.size());
    std::ranges::transform(pairs, ids.begin(), [](const Pair& pair) { return static_cast<std::int32_t>(pair.expert); });
    const std::size_t row_count = rows.size() / weights.hidden;
    const std::size_t slots = uniform_slots(row_count, pairs);
    if (slots > 0) {
        return run(
            weights, recipe,
            {static_cast<std::int64_t>(slots), static_cast<std::int64_t>(row_count), rows.data(), ids.data(), out});
    }
    gathered.resize(pairs.size() * weights.hidden);
    for (std::size_t i = 0; i < pairs.size(); ++i) {
        std::ranges::copy(rows.subspan(pairs[i].row * weights.hidden, weights.hidden),
                          gathered.begin() + static_cast<std::ptrdiff_t>(i * weights.hidden));
    }
    return run(weights, recipe, {1, static_cast<std::int64_t>(pairs.size()), gathered.data(), ids.data(), out});
}

Status Engine::Implementation::compute_chunked(const LayerWeights& weights, const Recipe& recipe,
                                               std::span<const float> rows, std::span<const Pair> pairs,
                                               std::size_t chunk, float* out) {
    const std::size_t hidden = weights.hidden;
    order.resize(pairs.size());
    std::iota(order.begin(), order.end(), 0U);
    std::ranges::stable_sort(order, {}, [&](std::uint32_t index) { return pairs[index].expert; });
    ids.resize(chunk);
    gathered.resize(chunk * hidden);
    results.resize(chunk * hidden);
    for (std::size_t first = 0; first < pairs.size(); first += chunk) {
        const std::span<const std::uint32_t> indices =
            std::span(order).subspan(first, std::min(chunk, pairs.size() - first));
        for (std::size_t i = 0; i < indices.size(); ++i) {
            const Pair& pair = pairs[indices[i]];
            ids[i] = static_cast<std::int32_t>(pair.expert);
            std::ranges::copy(rows.subspan(pair.row * hidden, hidden), gathered.data() + i * hidden);
        }
        Status status =
            run(weights, recipe,
                {1, static_cast<std::int64_t>(indices.size()), gathered.data(), ids.data(), results.data()});
        if (!status) return status;
        for (std::size_t i = 0; i < indices.size(); ++i) {
            std::ranges::copy(std::span(results).subspan(i * hidden, hidden), out + indices[i] * hidden);
        }
    }
    return {};
}

Engine::Engine(std::unique_ptr<Implementation> implementation) : implementation_(std::move(implementation)) {}
Engine::~Engine() = default;

Result<std::unique_ptr<Engine>> Engine::create(int threads) {
    if (threads < 1 || threads > kLargestTeam) {
        return fail(ErrorKind::usage, "{} threads to compute with: 1 to {} are possible", threads, kLargestTeam);
    }
    ggml_cpu_init();
    auto implementation = std::make_unique<Implementation>();
    implementation->threads = threads;
    ggml_threadpool_params parameters = ggml_threadpool_params_default(threads);
    parameters.poll = 0;
    implementation->pool.reset(ggml_threadpool_new(&parameters));
    if (!implementation->pool) return fail(ErrorKind::unavailable, "no threads to compute with");
    return std::unique_ptr<Engine>(new Engine(std::move(implementation)));
}

Status Engine::compute(const LayerWeights& weights, const Recipe& recipe, std::span<const float> rows,
                       std::span<const Pair> pairs, std::span<float> out) {
    Status checked = check_recipe(recipe, weights);
    if (!checked) return checked;
    const std::uint64_t hidden = weights.hidden;
    if (rows.size() % hidden != 0) {
        return fail(ErrorKind::invalid, "{} numbers are not whole rows of {}", rows.size(), hidden);
    }
    const std::uint64_t row_count = rows.size() / hidden;
    if (out.size() / hidden != pairs.size() || out.size() % hidden != 0) {
        return fail(ErrorKind::invalid, "room for {} output numbers; {} pairs of {} were asked for", out.size(),
                    pairs.size(), hidden);
    }
    for (const Pair& pair : pairs) {
        if (pair.row >= row_count) return fail(ErrorKind::invalid, "a pair of row {} of {}", pair.row, row_count);
        if (pair.expert >= weights.experts) {
            return fail(ErrorKind::invalid, "a pair of expert {} of {}", pair.expert, weights.experts);
        }
    }
    if (pairs.empty()) return {};
    const std::uint64_t chunk = std::max<std::uint64_t>(1, kScratchBytes / bytes_per_pair(weights));
    if (pairs.size() <= chunk) return implementation_->compute_whole(weights, recipe, rows, pairs, out.data());
    return implementation_->compute_chunked(weights, recipe, rows, pairs, chunk, out.data());
}

}  // namespace kvasir
