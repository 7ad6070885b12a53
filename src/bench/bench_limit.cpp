#include <sys/resource.h>

#include <chrono>
#include <csignal>
#include <nlohmann/json.hpp>

#include "backbone/ggml_backend.h"
#include "base/child_process.h"
#include "base/interrupt.h"
#include "base/units.h"
#include "bench/bench.h"
#include "bench/memory_limit.h"
#include "gguf/gguf_file.h"
#include "verify/session.h"

namespace kvasir {
namespace {

using std::chrono::steady_clock;
constexpr std::chrono::minutes kPatience{10};  // stock llama.cpp may crawl

double seconds_since(steady_clock::time_point start) {
    return std::chrono::duration<double>(steady_clock::now() - start).count();
}

double cpu_seconds() {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    auto seconds = [](const timeval& time) {
        return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
    };
    return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Greedy, from a fixed start: the same tokens whoever computes.
Result<std::vector<Token>> generate(LlamaSession& session, int count, std::uint32_t vocabulary) {
    std::vector<Token> tokens = {static_cast<Token>(1 % vocabulary)};
    for (int i = 0; i < count; ++i) {
        if (Status decoded = session.decode(std::span(&tokens.back(), 1)); !decoded) return fail(decoded.error());
        std::span<const float> logits = session.last_logits();
        tokens.push_back(static_cast<Token>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
    }
    return tokens;
}

Result<int> wait_or_be_interrupted(ChildProcess& child) {
    const auto end = steady_clock::now() + kPatience;
    for (;;) {
        Result<int> code = child.wait(std::chrono::milliseconds(100));
        if (interrupted()) return fail(ErrorKind::unavailable, "interrupted");
        if (code || steady_clock::now() >= end) return code;
    }
}

Result<nlohmann::json> run_limited(const LimitBench& options, bool stock, const MemoryLimit& limit) {
    if (Status dropped = drop_from_page_cache(options.model); !dropped) return fail(dropped.error());
    std::vector<std::string> arguments = {options.program.string(),
                                          "bench",
                                          "limited-run",
                                          options.model.string(),
                                          "--cgroup",
                                          limit.directory().string(),
                                          "--tokens",
                                          std::to_string(options.tokens),
                                          "--threads",
                                          std::to_string(options.threads),
                                          "--arithmetic",
                                          std::string(short_name(options.arithmetic))};
    // Stock means llama.cpp's own way of mapping the file, too.
    std::vector<std::string> environment = {"OMP_WAIT_POLICY=passive"};
    if (stock) {
        arguments.emplace_back("--stock");
        environment.emplace_back("KVASIR_EAGER_MAPPING=1");
    }
    auto child = ChildProcess::start({.arguments = arguments, .environment = environment});
    if (!child) return fail(child.error());
    Result<int> code = wait_or_be_interrupted(**child);
    if (!code) return fail(code.error().within(stock ? "stock llama.cpp under the limit" : "Kvasir under the limit"));
    nlohmann::json report = nlohmann::json::parse((*child)->stdout_text(), nullptr, false);
    if (*code == 128 + SIGKILL) {
        return fail(ErrorKind::unavailable, "{} was killed under the limit: allow it more memory",
                    stock ? "stock llama.cpp" : "Kvasir");
    }
    if (*code != 0 || report.is_discarded()) {
        return fail(ErrorKind::unavailable, "{} under the limit ended with {}: {}",
                    stock ? "stock llama.cpp" : "Kvasir", *code, (*child)->stderr_text());
    }
    return report;
}

}  // namespace

Result<std::string> limited_run(const LimitBench& options, bool stock) {
    auto start = steady_clock::now();
    prepare_llama();
    if (!stock) {
        BackendConfig config;
        config.arithmetic = options.arithmetic;
        auto registered = register_backend(std::move(config), BackendUse::fixed);
        if (!registered) return fail(registered.error());
    }
    Result<std::shared_ptr<const LlamaModel>> model = LlamaModel::load(options.model);
    if (!model) return fail(model.error());
    LlamaOptions settings;
    settings.threads = options.threads;
    settings.context = static_cast<std::uint32_t>(options.tokens + 8);
    settings.batch = 8;
    Result<std::unique_ptr<LlamaSession>> session = LlamaSession::create(*model, settings);
    if (!session) return fail(session.error());
    double started = seconds_since(start);
    double cpu_before = cpu_seconds();
    start = steady_clock::now();
    Result<std::vector<Token>> tokens = generate(**session, options.tokens, (*model)->vocabulary());
    if (!tokens) return fail(tokens.error());
    double seconds = seconds_since(start);
    // One thread that is neither computing nor in the kernel waits, and here that is for the disk.
    double busy = (cpu_seconds() - cpu_before) / (seconds * options.threads);
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    nlohmann::json report = {{"start_seconds", started},
                             {"tokens_s", options.tokens / seconds},
                             {"waiting_share", std::clamp(1 - busy, 0.0, 1.0)},
                             {"major_faults", usage.ru_majflt},
                             {"tokens", *tokens}};
    return report.dump();
}

Result<BenchReport> bench_limit(const LimitBench& options) {
    Result<GgufModel> model = GgufModel::open(options.model);
    if (!model) return fail(model.error());
    std::uint64_t size = 0;
    for (const ModelFile& file : model->files())
        size += file.size;
    std::uint64_t memory = options.memory != 0 ? options.memory : size / 3;
    Result<MemoryLimit> limit = MemoryLimit::create(memory);
    if (!limit) return fail(limit.error());
    Result<nlohmann::json> ours = run_limited(options, false, *limit);
    if (!ours) return fail(ours.error());
    BenchReport report;
    report.title = fmt::format("limit: {} of {} within {} of memory, {}", options.model.filename().string(),
                               human_bytes(size), human_bytes(memory), short_name(options.arithmetic));
    auto add = [&report](const char* key, const char* name, const nlohmann::json& run) {
        auto label = [&](const char* what) { return fmt::format("{}: {}", name, what); };
        auto full_key = [&](const char* what) { return fmt::format("{}_{}", key, what); };
        report.add(full_key("start_s"), label("start"), run.at("start_seconds"), "s");
        report.add(full_key("tokens_s"), label("decoding"), run.at("tokens_s"), "tokens/s");
        report.add(full_key("waiting_share"), label("share of time waiting for the disk"), run.at("waiting_share"), "");
        report.add(full_key("major_faults"), label("reads from disk"), run.at("major_faults"), "");
    };
    add("kvasir", "Kvasir", *ours);
    Result<nlohmann::json> stock = run_limited(options, true, *limit);
    if (interrupted()) return fail(stock.error());
    if (!stock) {
        report.notes.push_back("stock llama.cpp did not finish: " + stock.error().message);
        return report;
    }
    add("stock", "stock llama.cpp", *stock);
    report.add("ratio_to_stock", "Kvasir / stock, decoding",
               ours->at("tokens_s").get<double>() / stock->at("tokens_s").get<double>(), "x");
    // In portable the last bits differ, and so may a token.
    if (options.arithmetic == Arithmetic::ggml_cpu) {
        const bool same = ours->at("tokens") == stock->at("tokens");
        report.add("same_tokens", "same tokens", same ? 1 : 0, "", same ? "yes" : "NO");
    }
    return report;
}

}  // namespace kvasir
