// One call through the dispatcher, from plan to last row.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "backbone/dispatcher.h"
#include "backbone/latency_model.h"
#include "backbone/swarm.h"

namespace kvasir {

// Buffers for rows computed here, kept between calls. Thread-safe.
class ScratchPool {
  public:
    std::vector<float> take();
    void give_back(std::vector<float> buffer);

  private:
    std::mutex mutex_;
    std::vector<std::vector<float>> buffers_;
};

// What computing here costs. Thread-safe.
class LocalCost {
  public:
    void record(std::uint32_t pairs, double seconds);
    LatencyModel::Line line(std::uint32_t pairs) const;
    bool measured() const;
    // Whether it was measured too long ago to be believed (or never); says so once per interval.
    bool stale();

  private:
    mutable std::mutex mutex_;
    LatencyModel model_;
    SteadyTime last_;
};

// What all calls share.
struct CallContext {
    Swarm& swarm;
    std::chrono::milliseconds deadline;
    std::chrono::milliseconds shortest_deadline;
    bool prefer_remote = true;
    LocalCost local_cost = {};
    ScratchPool scratch = {};
};

// What became of a call's pairs: local + remote are all of them, where it succeeded.
struct CallTally {
    std::uint64_t local = 0;
    std::uint64_t remote = 0;
    std::uint64_t hedged = 0;
    double seconds_overhead = 0;
};

Status run_call(CallContext& context, const ExpertCall& call, LocalExperts& local, CallTally& tally);

}  // namespace kvasir
