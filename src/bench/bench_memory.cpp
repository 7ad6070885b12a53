#include <fmt/format.h>

#include <fstream>
#include <string>

#include "base/interrupt.h"
#include "bench/bench.h"
#include "bench/synthetic_worker.h"

namespace kvasir {
namespace {

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
    Result<std::unique_ptr<Dispatcher>> dispatcher = connect_to(worker, Arithmetic::ggml_cpu);
    if (!dispatcher) return fail(dispatcher.error());
    NoLocalExperts nobody;
    for (const ExpertLayer& layer : worker.map.layers) {
        OneRowCall call(layer, Arithmetic::ggml_cpu);
        if (Status computed = (*dispatcher)->compute(call.get(), nobody); !computed) return computed;
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
        if (interrupted()) return fail(ErrorKind::unavailable, "interrupted");
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
    report.add("fixed_mb", "fixed", (resident[0] - per_byte * held[0]) / 1e6, "MB", "bound 67 MB");
    return report;
}

}  // namespace kvasir
