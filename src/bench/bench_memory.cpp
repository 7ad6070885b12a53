#include <fmt/format.h>

#include <fstream>
#include <string>

#include "bench/bench.h"
#include "bench/synthetic_worker.h"
#include "expert/engine.h"

namespace kvasir {
namespace {

constexpr std::chrono::seconds kWorkerPatience{20};

class NoLocalExperts : public LocalExperts {
  public:
    Status compute(const ExpertCall&, std::span<const Pair>, std::span<float>) override {
        return fail(ErrorKind::unavailable, "a call went to the local replica instead of the worker");
    }
};

// Resident bytes of a process, all kinds of pages.
std::uint64_t resident_bytes(int pid) {
    std::ifstream status(fmt::format("/proc/{}/status", pid));
    for (std::string line; std::getline(status, line);) {
        if (line.starts_with("VmRSS:")) return std::stoull(line.substr(6)) * 1024;
    }
    return 0;
}

// Has the worker compute with every expert it holds.
Status use_all_experts(const SyntheticWorker& worker) {
    SwarmConfig config;
    config.workers = {worker.endpoint};
    config.model_id = worker.model_id;
    config.arithmetic = ggml_cpu_arithmetic();
    config.deadline = std::chrono::seconds(30);
    Result<std::unique_ptr<Dispatcher>> dispatcher = Dispatcher::create(config);
    if (!dispatcher) return fail(dispatcher.error());
    if (!(*dispatcher)->wait_for_workers(kWorkerPatience)) {
        return fail(ErrorKind::unavailable, "the worker does not serve: {}", (*dispatcher)->stats().workers[0].reason);
    }
    NoLocalExperts nobody;
    for (const ExpertLayer& layer : worker.map.layers) {
        std::vector<float> row(layer.hidden, 0.25F);
        std::vector<Pair> pairs;
        for (std::uint32_t expert = 0; expert < layer.experts; ++expert)
            pairs.push_back({0, expert});
        std::vector<float> out(pairs.size() * layer.hidden);
        ExpertCall call{.layer = layer.layer,
                        .hidden = static_cast<std::uint32_t>(layer.hidden),
                        .recipe = layer.recipe,
                        .rows = row,
                        .pairs = pairs,
                        .out = out};
        if (Status computed = (*dispatcher)->compute(call, nobody); !computed) return computed;
    }
    return {};
}

}  // namespace

Result<BenchReport> bench_memory(const std::filesystem::path& program) {
    // Two sizes: their difference is what an expert costs, the rest is what a worker costs.
    BenchReport report;
    report.title = "memory: a worker process, all experts used";
    std::vector<double> held;
    std::vector<double> resident;
    for (std::uint32_t layers : {1U, 3U}) {
        SyntheticShape shape{.hidden = 3072, .ff = 1024, .experts = 16, .layers = layers};
        Result<SyntheticWorker> worker = start_synthetic_worker(program, shape, false);
        if (!worker) return fail(worker.error());
        if (Status used = use_all_experts(*worker); !used) return fail(used.error());
        held.push_back(static_cast<double>(worker->map.expert_bytes));
        resident.push_back(static_cast<double>(resident_bytes(worker->process->pid())));
        report.add(fmt::format("resident_mb_{}", layers),
                   fmt::format("resident with {:.0f} MB of experts", held.back() / 1e6), resident.back() / 1e6, "MB");
    }
    double per_byte = (resident[1] - resident[0]) / (held[1] - held[0]);
    report.add("per_expert_byte", "resident per byte of expert", per_byte, "x", "target 1.0");
    report.add("fixed_mb", "fixed", (resident[0] - per_byte * held[0]) / 1e6, "MB", "bound 67 MB (64 MiB)");
    return report;
}

}  // namespace kvasir
