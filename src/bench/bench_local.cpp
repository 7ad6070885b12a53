#include <chrono>

#include "backbone/ggml_backend.h"
#include "base/units.h"
#include "bench/bench.h"
#include "gguf/expert_map.h"
#include "verify/session.h"

namespace kvasir {
namespace {

using std::chrono::steady_clock;

// Seconds to decode `tokens` tokens one by one from an empty sequence. Which tokens does not matter, only that all
// runs take the same: the experts they choose must be the same ones.
Result<double> decode_run(LlamaSession& session, std::span<const Token> tokens) {
    session.clear();
    auto start = steady_clock::now();
    for (const Token& token : tokens) {
        if (Status decoded = session.decode(std::span(&token, 1)); !decoded) return fail(decoded.error());
    }
    return std::chrono::duration<double>(steady_clock::now() - start).count();
}

// What one token reads at least: everything but the experts, and of these the top-k. Token embeddings that are not
// also the output matrix are read a row at a time and don't count.
std::uint64_t bytes_per_token(const GgufModel& model, const ExpertMap& map) {
    std::uint64_t bytes = map.model_bytes - map.expert_bytes;
    const TensorInfo* embedding = model.find("token_embd.weight");
    if (embedding != nullptr && model.find("output.weight") != nullptr) bytes -= embedding->bytes;
    for (const ExpertLayer& layer : map.layers)
        bytes += layer.expert_bytes() * map.experts_used;
    return bytes;
}

}  // namespace

Result<BenchReport> bench_local(const LocalBench& options) {
    Result<GgufModel> file = GgufModel::open(options.model);
    if (!file) return fail(file.error());
    Result<ExpertMap> map = map_experts(*file);
    if (!map) return fail(map.error());
    if (map->layers.empty())
        return fail(ErrorKind::unsupported, "{}: a dense model, there are no experts to compute",
                    options.model.string());

    prepare_llama();
    LlamaOptions settings;
    settings.threads = options.threads;
    settings.context = static_cast<std::uint32_t>(options.tokens + 8);
    settings.batch = 8;
    Result<std::shared_ptr<const LlamaModel>> stock_model = LlamaModel::load(options.model);
    if (!stock_model) return fail(stock_model.error());
    Result<std::unique_ptr<LlamaSession>> stock = LlamaSession::create(*stock_model, settings);
    if (!stock) return fail(stock.error());
    BackendConfig config;
    config.arithmetic = options.arithmetic;
    if (auto registered = register_backend(config, BackendUse::fixed); !registered) return fail(registered.error());
    Result<std::shared_ptr<const LlamaModel>> our_model = LlamaModel::load(options.model);
    if (!our_model) return fail(our_model.error());
    Result<std::unique_ptr<LlamaSession>> ours = LlamaSession::create(*our_model, settings);
    if (!ours) return fail(ours.error());

    std::vector<Token> tokens;
    tokens.reserve(static_cast<std::size_t>(options.tokens));
    for (int i = 0; i < options.tokens; ++i) {
        tokens.push_back(static_cast<Token>((i * 7919 + 13) % static_cast<int>((*stock_model)->vocabulary())));
    }
    std::vector<double> ratios;
    std::vector<double> stock_speeds;
    for (int round = -1; round < options.rounds; ++round) {  // the first pair only warms up
        Result<double> stock_seconds = decode_run(**stock, tokens);
        if (!stock_seconds) return fail(stock_seconds.error());
        Result<double> our_seconds = decode_run(**ours, tokens);
        if (!our_seconds) return fail(our_seconds.error());
        if (round < 0) continue;
        ratios.push_back(*stock_seconds / *our_seconds);
        stock_speeds.push_back(options.tokens / *stock_seconds);
    }
    double ratio = quantile(ratios, 0.5);
    double stock_speed = quantile(stock_speeds, 0.5);
    double bound = memory_read_speed(options.threads) / static_cast<double>(bytes_per_token(*file, *map));
    BenchReport report;
    report.title = fmt::format("local: {}, {}, {} thread(s), {} pairs of {} tokens, no repacking",
                               options.model.filename().string(), short_name(options.arithmetic), options.threads,
                               options.rounds, options.tokens);
    report.add("stock_tokens_s", "stock llama.cpp", stock_speed, "tokens/s");
    report.add("kvasir_tokens_s", "Kvasir without workers", stock_speed * ratio, "tokens/s");
    report.add("ratio_to_stock", "Kvasir / stock", ratio, "x",
               fmt::format("quartiles {:.3f} to {:.3f}, target 0.97", quantile(ratios, 0.25), quantile(ratios, 0.75)));
    report.add("bound_tokens_s", "bound: weights per token at the memory's speed", bound, "tokens/s",
               fmt::format("Kvasir reaches {:.2f} of it", stock_speed * ratio / bound));
    return report;
}

}  // namespace kvasir
