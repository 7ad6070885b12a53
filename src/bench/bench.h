// `kvasir bench`: every figure beside the peer or the bound it is judged by, measured in the same run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/result.h"
#include "bench/report.h"
#include "expert/arithmetic.h"

namespace kvasir {

// How fast this machine reads memory, in bytes per second: the bound of every mat-vec.
double memory_read_speed(int threads);

struct LocalBench {
    std::filesystem::path model;
    int threads = 1;
    int rounds = 15;  // pairs of runs, stock and Kvasir in turn
    int tokens = 24;  // decoded one by one in a run
    Arithmetic arithmetic = Arithmetic::portable;
};
// Decoding without workers against stock llama.cpp, both without repacking. Once per process: it registers the backend.
Result<BenchReport> bench_local(const LocalBench& options);

struct WorkerBench {
    std::string type = "Q4_K";  // of all weights
    int threads = 1;
    std::uint64_t hidden = 3072;
    std::uint64_t ff = 1024;
    std::uint32_t experts = 64;
};
// A worker's arithmetic against the memory's speed and ggml's repacked weights, by rows per expert.
Result<BenchReport> bench_worker(const WorkerBench& options);

struct DispatchBench {
    std::filesystem::path program;  // kvasir itself
    std::uint64_t hidden = 256;
    std::uint32_t used = 4;  // pairs a call, all for one worker
    int calls = 2000;
    bool tls = true;
    Arithmetic arithmetic = Arithmetic::portable;
};
// What one layer's call costs beyond the worker's own computing: a real worker process on loopback, batch 1.
Result<BenchReport> bench_dispatch(const DispatchBench& options);

// `slice` of the whole model against `cp` and fsync.
Result<BenchReport> bench_slice(const std::filesystem::path& model);

struct DownloadBench {
    std::filesystem::path program;  // kvasir itself
    std::string nginx;              // the program; empty: the one found when this was built, if any
};
// A hub's byte ranges, and whole downloads from it, against nginx with the same client on the same file.
Result<BenchReport> bench_download(const DownloadBench& options);

// A worker process's resident memory against the bytes of the experts it holds, all of them used.
Result<BenchReport> bench_memory(const std::filesystem::path& program);

struct LimitBench {
    std::filesystem::path program;  // kvasir itself
    std::filesystem::path model;
    std::uint64_t memory = 0;  // bytes; 0: a third of the model
    int tokens = 32;
    int threads = 1;
    Arithmetic arithmetic = Arithmetic::portable;
};
// Start and decoding inside a memory cgroup smaller than the model, against stock llama.cpp under the same limit.
// ErrorKind::unsupported, saying why, where no limit can be set.
Result<BenchReport> bench_limit(const LimitBench& options);

// What bench_limit runs inside the limit: loads, generates, prints one JSON line.
Result<std::string> limited_run(const LimitBench& options, bool stock);

}  // namespace kvasir
