// Which pairs of a call go where. A pure function of what is held, what is measured and what is asked.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "backbone/latency_model.h"
#include "backbone/replica_book.h"
#include "expert/pair.h"

namespace kvasir {

// What a worker would cost right now; only for workers that may be asked.
struct Quote {
    std::uint32_t worker = 0;
    std::uint64_t epoch = 0;
    LatencyModel::Line line;
    double backlog = 0;  // seconds of work it has from other calls
};

struct PlanRequest {
    std::uint32_t layer = 0;
    std::span<const Pair> pairs;
    std::span<const Quote> quotes;  // by rising worker, each once
    // What computing here costs; none: only where no worker can be asked.
    std::optional<LatencyModel::Line> local;
    // No worker is given more than it is expected to answer within so many seconds; the rest is computed here.
    double longest = std::numeric_limits<double>::infinity();
};

struct Share {
    std::uint32_t worker = 0;
    std::uint64_t epoch = 0;
    std::vector<std::uint32_t> pairs;  // indices into the call's, rising
};

struct CallPlan {
    std::vector<std::uint32_t> local;  // indices into the call's pairs, rising
    std::vector<Share> remote;         // at most one per worker, none empty
};

// Every pair once. All pairs of one expert go to the same place (its weights are read once there); experts are given,
// most pairs first, to whoever would be done first.
CallPlan plan_call(const PlanRequest& request, const ReplicaBook& book);

}  // namespace kvasir
