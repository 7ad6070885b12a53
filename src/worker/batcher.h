// Computes what all sessions ask for, on one thread (with one team of threads behind it): whatever waits for the same
// layer is computed together. Nobody waits for company: a free batcher takes what is there.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/result.h"
#include "expert/engine.h"
#include "wire/messages.h"
#include "worker/piece_store.h"

namespace kvasir {

// A job's pairs within one held piece.
struct JobPart {
    const HeldPiece* held = nullptr;
    std::vector<Pair> pairs;            // local expert ids
    std::vector<std::uint32_t> places;  // where each is among the job's pairs
};

// One compute request. Everything in it has been checked.
struct Job {
    ByteVector payload;  // owns what `compute` aliases
    Compute compute;
    Arithmetic arithmetic = Arithmetic::portable;
    std::vector<JobPart> parts;
    // Called once, on the computing thread or the one that stops the batcher, no lock held.
    std::function<void(Result<ResultBuffer>)> done;
    std::chrono::steady_clock::time_point arrival = std::chrono::steady_clock::now();
};
using JobPtr = std::shared_ptr<Job>;

struct BatcherLimits {
    std::size_t jobs = 512;                               // waiting
    std::uint64_t bytes = std::uint64_t{128} << 20;       // of waiting payloads; one job may always wait
    std::uint64_t batch_bytes = std::uint64_t{25} << 20;  // of the results of jobs computed together
};

struct BatcherStats {
    std::uint64_t jobs = 0;
    std::uint64_t batches = 0;
    std::uint64_t pairs = 0;
    std::uint64_t weight_bytes = 0;  // of the distinct experts of each batch
    std::uint64_t queue_us = 0;      // sum over jobs
    std::uint64_t compute_us = 0;    // sum over batches
};

// Thread-safe.
class Batcher {
  public:
    // An engine for each arithmetic, with `threads` threads.
    static Result<std::unique_ptr<Batcher>> create(int threads, const BatcherLimits& limits = {});
    // Stops it.
    ~Batcher();
    Batcher(const Batcher&) = delete;
    Batcher& operator=(const Batcher&) = delete;

    // Takes a job, or says why not: ErrorKind::unavailable when too much waits or it was stopped.
    Status submit(JobPtr job);
    // Computes a job on the caller's thread, `done` included, if the batcher is free; otherwise does nothing and
    // returns false. Two thread switches sooner than submit(), but nobody else's job can join it.
    bool compute_now(const JobPtr& job);
    // Drops a job that still waits, without calling its `done`; false if it is being or was computed.
    bool cancel(const Job* job);
    // Ends the thread after what it is computing; what waits gets ErrorKind::unavailable.
    void stop();
    // True once nothing waits or is computed; false if that takes longer than `timeout`.
    bool wait_idle(std::chrono::milliseconds timeout);
    std::uint32_t waiting() const;
    BatcherStats stats() const;

  private:
    using Engines = std::map<Arithmetic, std::unique_ptr<Engine>>;
    Batcher(Engines engines, const BatcherLimits& limits);
    void run();
    std::vector<JobPtr> take_batch();
    void finish_computing();
    void compute(const std::vector<JobPtr>& batch);
    Status compute_alone(const Job& job, ResultBuffer& result);
    Status compute_together(const std::vector<JobPtr>& batch, std::vector<ResultBuffer>& results);
    static std::uint64_t distinct_bytes(const std::vector<JobPtr>& batch);

    const BatcherLimits limits_;
    const Engines engines_;  // of the thread that has set computing_

    mutable std::mutex mutex_;  // guards the rest
    std::condition_variable work_;
    std::condition_variable idle_;
    std::deque<JobPtr> queue_;
    std::uint64_t queue_bytes_ = 0;
    bool computing_ = false;
    bool stopped_ = false;
    BatcherStats stats_;
    std::thread thread_;
};

}  // namespace kvasir
