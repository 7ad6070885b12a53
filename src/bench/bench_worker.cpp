#include <ggml.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <random>

#include "bench/bench.h"
#include "bench/repacked_experts.h"
#include "expert/engine.h"
#include "portable/types.h"
#include "worker/answer_signer.h"

namespace kvasir {
namespace {

using std::chrono::steady_clock;
// What is compared is measured in turn, so that whatever else the machine does slows all of it.
constexpr int kRounds = 9;
constexpr double kSeconds = 0.1;  // of each in a round
constexpr std::uint32_t kExpertsPerCall = 8;

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
    const std::vector<float> importance(columns, 1.0F);  // some types want to be told
    ggml_quantize_chunk(type, values.data(), all.data(), 0, static_cast<std::int64_t>(rows),
                        static_cast<std::int64_t>(columns), importance.data());
    for (std::uint32_t expert = 1; expert < experts; ++expert) {
        std::copy_n(all.begin(), bytes, all.begin() + static_cast<std::ptrdiff_t>(bytes * expert));
    }
    return all;
}

Weights make_weights(const WorkerBench& options, ggml_type type) {
    Weights weights;
    weights.gate = quantised(type, options.hidden, options.ff, options.experts);
    weights.up = quantised(type, options.hidden, options.ff, options.experts);
    weights.down = quantised(type, options.ff, options.hidden, options.experts);
    weights.view.hidden = options.hidden;
    weights.view.ff = options.ff;
    weights.view.experts = options.experts;
    auto place = [&](Role role, const std::vector<std::byte>& data, std::uint64_t columns, std::uint64_t rows) {
        weights.view.tensors[static_cast<std::size_t>(role)] =
            WeightView{static_cast<std::uint32_t>(type), {columns, rows, options.experts, 1}, data.data()};
        weights.expert_bytes += data.size() / options.experts;
    };
    place(Role::gate, weights.gate, options.hidden, options.ff);
    place(Role::up, weights.up, options.hidden, options.ff);
    place(Role::down, weights.down, options.ff, options.hidden);
    return weights;
}

std::optional<ggml_type> find_type(std::string name) {
    std::ranges::transform(name, name.begin(), [](unsigned char letter) { return std::tolower(letter); });
    for (int type = 0; type < GGML_TYPE_COUNT; ++type) {
        std::string known = ggml_type_name(static_cast<ggml_type>(type));
        std::ranges::transform(known, known.begin(), [](unsigned char letter) { return std::tolower(letter); });
        if (known == name && portable::find_traits(static_cast<ggml_type>(type)) != nullptr)
            return static_cast<ggml_type>(type);
    }
    return std::nullopt;
}

// Calls of eight experts, each with `rows` rows; the next call takes the next eight, so that weights come from memory
// and not from a cache.
class Calls {
  public:
    Calls(Arithmetic arithmetic, Engine& engine, const LayerWeights& weights, std::uint32_t rows)
        : engine_(engine),
          weights_(weights),
          rows_(rows),
          encoding_(input_encoding(arithmetic, weights)),
          result_encoding_(output_encoding(arithmetic)) {
        recipe_.activation = Activation::silu;
        const std::vector<float> values(rows * weights.hidden, 0.5F);
        input_.resize(rows * row_bytes(encoding_, weights.hidden));
        encode_rows(encoding_, weights.hidden, values, input_);
        out_.resize(kExpertsPerCall * rows * row_bytes(result_encoding_, weights.hidden));
    }
    Status compute() {
        pairs_.clear();
        for (std::uint32_t e = 0; e < kExpertsPerCall; ++e) {
            for (std::uint32_t row = 0; row < rows_; ++row)
                pairs_.push_back({row, (first_ + e) % weights_.experts});
        }
        first_ += kExpertsPerCall;
        return engine_.compute(weights_, recipe_, input_, pairs_, out_);
    }
    // What a worker does besides, so that its answers are signed (a signature costs nothing beside its digests).
    Status digest() {
        Compute compute;
        compute.hidden = static_cast<std::uint32_t>(weights_.hidden);
        compute.recipe = recipe_;
        compute.encoding = encoding_;
        compute.pairs = pairs_;
        compute.rows = input_;
        digests_ = digest_answers(compute, result_encoding_, out_);
        return {};
    }

  private:
    Engine& engine_;
    const LayerWeights& weights_;
    std::uint32_t rows_;
    RowEncoding encoding_;
    RowEncoding result_encoding_;
    Recipe recipe_;
    ByteVector input_;
    ByteVector out_;
    std::vector<Pair> pairs_;
    std::vector<Digest> digests_;
    std::uint32_t first_ = 0;
};

// One way to compute, and what it reached in each round.
struct Contender {
    std::string name;
    std::function<Status()> compute;
    std::vector<double> pairs_s = {};
};

Status measure(Contender& contender, std::uint32_t rows) {
    std::uint64_t calls = 0;
    const auto start = steady_clock::now();
    double seconds = 0;
    while (seconds < kSeconds) {
        if (Status computed = contender.compute(); !computed) return computed;
        ++calls;
        seconds = std::chrono::duration<double>(steady_clock::now() - start).count();
    }
    contender.pairs_s.push_back(static_cast<double>(calls * kExpertsPerCall * rows) / seconds);
    return {};
}

double median_ratio(const Contender& one, const Contender& other) {
    std::vector<double> ratios;
    for (std::size_t i = 0; i < one.pairs_s.size(); ++i)
        ratios.push_back(one.pairs_s[i] / other.pairs_s[i]);
    return quantile(ratios, 0.5);
}

// The first is compared with each of the others.
Status compare(std::span<Contender> contenders, std::uint32_t rows, std::uint64_t expert_bytes, double memory,
               BenchReport& report) {
    for (int round = 0; round < kRounds; ++round) {
        for (Contender& contender : contenders) {
            if (Status measured = measure(contender, rows); !measured) return measured;
        }
    }
    for (const Contender& contender : contenders) {
        const double pairs_s = quantile(contender.pairs_s, 0.5);
        const double bytes = pairs_s / rows * static_cast<double>(expert_bytes);
        report.add(fmt::format("{}_pairs_s_at_{}", contender.name, rows),
                   fmt::format("{}, {} row(s) per expert", contender.name, rows), pairs_s, "pairs/s",
                   fmt::format("{:.1f} GB/s of weights, {:.2f} of reading memory", bytes / 1e9, bytes / memory));
    }
    const Contender& first = contenders.front();
    for (const Contender& other : contenders.subspan(1)) {
        const std::string key = other.name == short_name(Arithmetic::ggml_cpu) ? "ratio" : "ratio_to_" + other.name;
        report.add(fmt::format("{}_at_{}", key, rows),
                   fmt::format("{} / {}, {} row(s) per expert", first.name, other.name, rows),
                   median_ratio(first, other), "");
    }
    return {};
}

}  // namespace

Result<BenchReport> bench_worker(const WorkerBench& options) {
    const std::optional<ggml_type> type = find_type(options.type);
    if (!type) return fail(ErrorKind::usage, "'{}' is no type of weights that experts are computed with", options.type);
    const auto block = static_cast<std::uint64_t>(ggml_blck_size(*type));
    if (options.hidden % block != 0 || options.ff % block != 0 || options.experts < kExpertsPerCall) {
        return fail(ErrorKind::usage, "hidden and ff must be multiples of {} ({}), experts at least {}", block,
                    options.type, kExpertsPerCall);
    }
    std::map<Arithmetic, std::unique_ptr<Engine>> engines;
    for (Arithmetic arithmetic : known_arithmetics()) {
        Result<std::unique_ptr<Engine>> engine = Engine::create(arithmetic, options.threads);
        if (!engine) return fail(engine.error());
        engines[arithmetic] = std::move(*engine);
    }
    Weights weights = make_weights(options, *type);
    double memory = memory_read_speed(options.threads);
    BenchReport report;
    report.title = fmt::format("worker: {} experts of {} x {}, {}, {} thread(s), medians of {} rounds in turn",
                               options.experts, options.hidden, options.ff, options.type, options.threads, kRounds);
    report.add("memory_gb_s", "reading memory", memory / 1e9, "GB/s");
    for (std::uint32_t rows : {1U, 8U, 64U}) {
        std::vector<Contender> contenders;
        std::shared_ptr<Calls> signed_calls;
        for (Arithmetic arithmetic : {Arithmetic::portable, Arithmetic::ggml_cpu}) {
            auto calls = std::make_shared<Calls>(arithmetic, *engines[arithmetic], weights.view, rows);
            contenders.push_back({std::string(short_name(arithmetic)), [calls] { return calls->compute(); }});
            if (arithmetic == Arithmetic::portable) signed_calls = calls;
        }
        if (rows > 1) {
            Result<std::unique_ptr<RepackedExperts>> made =
                RepackedExperts::create(weights.view, rows, options.threads);
            if (!made) return fail(made.error());
            std::shared_ptr<RepackedExperts> repacked = std::move(*made);
            if (repacked) contenders.push_back({"repacked", [repacked] { return repacked->compute(); }});
        }
        Status compared = compare(contenders, rows, weights.expert_bytes, memory, report);
        if (!compared) return fail(compared.error());
        Contender signing{"signing", [calls = signed_calls] { return calls->digest(); }};
        if (Status measured = measure(signing, rows); !measured) return fail(measured.error());
        report.add(fmt::format("signing_share_at_{}", rows), fmt::format("signing, {} row(s) per expert", rows),
                   100 * quantile(contenders.front().pairs_s, 0.5) / signing.pairs_s.front(), "%",
                   "of computing in portable; target 2 %");
    }
    return report;
}

}  // namespace kvasir
