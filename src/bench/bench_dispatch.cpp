#include <chrono>

#include "base/interrupt.h"
#include "bench/bench.h"
#include "bench/synthetic_worker.h"

namespace kvasir {
namespace {

using std::chrono::steady_clock;
constexpr double kTargetMicroseconds = 100;

}  // namespace

Result<BenchReport> bench_dispatch(const DispatchBench& options) {
    SyntheticShape shape{.hidden = options.hidden, .ff = 256, .experts = options.used, .layers = 1};
    Result<SyntheticWorker> worker = start_synthetic_worker(options.program, shape, options.tls);
    if (!worker) return fail(worker.error());
    Result<std::unique_ptr<Dispatcher>> dispatcher = connect_to(*worker, options.arithmetic);
    if (!dispatcher) return fail(dispatcher.error());

    const ExpertLayer& layer = worker->map.layers.front();
    OneRowCall call(layer, options.arithmetic);
    NoLocalExperts nobody;
    std::vector<double> whole;
    std::vector<double> beyond;
    double overhead_before = (*dispatcher)->stats().seconds_overhead;
    for (int i = -200; i < options.calls; ++i) {  // the first ones warm up
        if (interrupted()) return fail(ErrorKind::unavailable, "interrupted");
        auto start = steady_clock::now();
        if (Status computed = (*dispatcher)->compute(call.get(), nobody); !computed) return fail(computed.error());
        double seconds = std::chrono::duration<double>(steady_clock::now() - start).count();
        double overhead = (*dispatcher)->stats().seconds_overhead;
        if (i >= 0) {
            whole.push_back(seconds * 1e6);
            beyond.push_back((overhead - overhead_before) * 1e6);
        }
        overhead_before = overhead;
    }
    SwarmStats stats = (*dispatcher)->stats();
    auto calls = static_cast<double>(stats.calls);
    BenchReport report;
    report.title = fmt::format("dispatch: hidden {}, {} pairs a call, one worker process on loopback, {}",
                               options.hidden, options.used, options.tls ? "TLS 1.3" : "no TLS");
    report.add("beyond_p50_us", "beyond the worker's computing, p50", quantile(beyond, 0.5), "us",
               fmt::format("target {:.0f} us", kTargetMicroseconds));
    report.add("beyond_p90_us", "beyond the worker's computing, p90", quantile(beyond, 0.9), "us");
    report.add("beyond_p99_us", "beyond the worker's computing, p99", quantile(beyond, 0.99), "us");
    report.add("call_p50_us", "whole call, p50", quantile(whole, 0.5), "us");
    report.add("bytes_up", "bytes to the worker", static_cast<double>(stats.bytes_sent) / calls, "B/call");
    report.add("bytes_down", "bytes back", static_cast<double>(stats.bytes_received) / calls, "B/call");
    return report;
}

}  // namespace kvasir
