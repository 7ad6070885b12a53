#include <ggml.h>

#include <chrono>
#include <map>
#include <random>
#include <thread>

#include "bench/bench.h"
#include "expert/engine.h"

namespace kvasir {
namespace {

using std::chrono::steady_clock;
constexpr double kSeconds = 0.7;  // per figure

// The experts of one layer with the same random weights each, in memory of their own.
struct Weights {
    std::vector<std::byte> gate, up, down;
    LayerWeights view;
    std::uint64_t expert_bytes = 0;
};

std::vector<std::byte> quantised(ggml_type type, std::uint64_t columns, std::uint64_t rows, std::uint32_t experts) {
    std::mt19937 random(7);
    std::normal_distribution<float> normal(0, 0.02F);
    std::vector<float> values(columns * rows);
    for (float& value : values)
        value = normal(random);
    std::size_t bytes = ggml_row_size(type, static_cast<std::int64_t>(columns)) * rows;
    std::vector<std::byte> all(bytes * experts);
    ggml_quantize_chunk(type, values.data(), all.data(), 0, static_cast<std::int64_t>(rows),
                        static_cast<std::int64_t>(columns), nullptr);
    for (std::uint32_t expert = 1; expert < experts; ++expert) {
        std::copy_n(all.begin(), bytes, all.begin() + static_cast<std::ptrdiff_t>(bytes * expert));
    }
    return all;
}

Weights make_weights(const WorkerBench& options) {
    Weights weights;
    weights.gate = quantised(GGML_TYPE_Q4_K, options.hidden, options.ff, options.experts);
    weights.up = quantised(GGML_TYPE_Q4_K, options.hidden, options.ff, options.experts);
    weights.down = quantised(GGML_TYPE_Q4_K, options.ff, options.hidden, options.experts);
    weights.view.hidden = options.hidden;
    weights.view.ff = options.ff;
    weights.view.experts = options.experts;
    auto place = [&](Role role, const std::vector<std::byte>& data, std::uint64_t columns, std::uint64_t rows) {
        weights.view.tensors[static_cast<std::size_t>(role)] =
            WeightView{GGML_TYPE_Q4_K, {columns, rows, options.experts, 1}, data.data()};
        weights.expert_bytes += data.size() / options.experts;
    };
    place(Role::gate, weights.gate, options.hidden, options.ff);
    place(Role::up, weights.up, options.hidden, options.ff);
    place(Role::down, weights.down, options.ff, options.hidden);
    return weights;
}

// Eight experts a call, each with `rows` rows; the next call takes the next eight, so that weights come from memory and
// not from a cache. Pairs per second.
Result<double> measure(Arithmetic arithmetic, Engine& engine, const LayerWeights& weights, std::uint32_t rows) {
    Recipe recipe;
    recipe.activation = Activation::silu;
    const RowEncoding encoding = input_encoding(arithmetic, weights);
    const std::vector<float> values(rows * weights.hidden, 0.5F);
    ByteVector input(rows * row_bytes(encoding, weights.hidden));
    encode_rows(encoding, weights.hidden, values, input);
    ByteVector out(8 * rows * row_bytes(output_encoding(arithmetic), weights.hidden));
    std::vector<Pair> pairs;
    std::uint64_t calls = 0;
    auto start = steady_clock::now();
    double seconds = 0;
    while (seconds < kSeconds) {
        pairs.clear();
        for (std::uint32_t e = 0; e < 8; ++e) {
            for (std::uint32_t row = 0; row < rows; ++row) {
                pairs.push_back({row, static_cast<std::uint32_t>((calls * 8 + e) % weights.experts)});
            }
        }
        if (Status computed = engine.compute(weights, recipe, input, pairs, out); !computed) {
            return fail(computed.error());
        }
        ++calls;
        seconds = std::chrono::duration<double>(steady_clock::now() - start).count();
    }
    return static_cast<double>(calls * 8 * rows) / seconds;
}

}  // namespace

Result<BenchReport> bench_worker(const WorkerBench& options) {
    if (options.hidden % 256 != 0 || options.ff % 256 != 0 || options.experts < 8) {
        return fail(ErrorKind::usage, "hidden and ff must be multiples of 256 (Q4_K), experts at least 8");
    }
    std::map<Arithmetic, std::unique_ptr<Engine>> engines;
    for (Arithmetic arithmetic : known_arithmetics()) {
        Result<std::unique_ptr<Engine>> engine = Engine::create(arithmetic, options.threads);
        if (!engine) return fail(engine.error());
        engines[arithmetic] = std::move(*engine);
    }
    Weights weights = make_weights(options);
    double memory = memory_read_speed(options.threads);
    BenchReport report;
    report.title = fmt::format("worker: {} experts of {} x {}, Q4_K, {} thread(s)", options.experts, options.hidden,
                               options.ff, options.threads);
    report.add("memory_gb_s", "reading memory", memory / 1e9, "GB/s");
    for (std::uint32_t rows : {1U, 8U, 64U}) {
        std::map<Arithmetic, double> pairs;
        for (const auto& [arithmetic, engine] : engines) {
            Result<double> measured = measure(arithmetic, *engine, weights.view, rows);
            if (!measured) return fail(measured.error());
            pairs[arithmetic] = *measured;
            const std::string name(short_name(arithmetic));
            const double bytes = *measured / rows * static_cast<double>(weights.expert_bytes);
            report.add(fmt::format("{}_pairs_s_at_{}", name, rows), fmt::format("{}, {} row(s) per expert", name, rows),
                       *measured, "pairs/s",
                       fmt::format("{:.1f} GB/s of weights, {:.2f} of reading memory", bytes / 1e9, bytes / memory));
        }
        report.add(fmt::format("ratio_at_{}", rows), fmt::format("portable / ggml-cpu, {} row(s) per expert", rows),
                   pairs[Arithmetic::portable] / pairs[Arithmetic::ggml_cpu], "");
    }
    return report;
}

}  // namespace kvasir
