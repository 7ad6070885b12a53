#include "backbone/dispatcher.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>

#include "backbone/call_run.h"
#include "backbone/swarm.h"

namespace kvasir {
namespace {

class SwarmDispatcher : public Dispatcher {
  public:
    explicit SwarmDispatcher(const SwarmConfig& config)
        : swarm_(config), context_{swarm_, config.deadline, config.timing.shortest_deadline, config.prefer_remote} {}

    ~SwarmDispatcher() override {
        swarm_.stop();
        std::unique_lock lock(mutex_);
        idle_.wait(lock, [this] { return active_ == 0; });
    }
    SwarmDispatcher(const SwarmDispatcher&) = delete;
    SwarmDispatcher& operator=(const SwarmDispatcher&) = delete;

    Status compute(const ExpertCall& call, LocalExperts& local) override {
        enter();
        CallTally tally;
        Status status = run_call(context_, call, local, tally);
        leave(tally);
        return status;
    }

    bool wait_for_workers(std::chrono::milliseconds timeout) override { return swarm_.wait(timeout); }

    SwarmStats stats() const override {
        SwarmStats stats;
        {
            std::scoped_lock lock(mutex_);
            stats = stats_;
        }
        for (const auto& link : swarm_.links()) {
            stats.workers.push_back(link->status());
            stats.bytes_sent += link->bytes_sent();
            stats.bytes_received += link->bytes_received();
        }
        return stats;
    }

  private:
    void enter() {
        std::scoped_lock lock(mutex_);
        ++active_;
    }

    void leave(const CallTally& tally) {
        std::scoped_lock lock(mutex_);
        ++stats_.calls;
        stats_.pairs_local += tally.local;
        stats_.pairs_remote += tally.remote;
        stats_.pairs_hedged += tally.hedged;
        stats_.seconds_overhead += tally.seconds_overhead;
        if (--active_ == 0) idle_.notify_all();
    }

    Swarm swarm_;
    CallContext context_;
    mutable std::mutex mutex_;
    std::condition_variable idle_;
    std::size_t active_ = 0;
    SwarmStats stats_;
};

}  // namespace

const char* state_name(WorkerStatus::State state) {
    switch (state) {
        case WorkerStatus::State::connecting:
            return "connecting";
        case WorkerStatus::State::serving:
            return "serving";
        case WorkerStatus::State::set_aside:
            return "set aside";
        case WorkerStatus::State::draining:
            return "draining";
        case WorkerStatus::State::refused:
            return "refused";
    }
    return "unknown";
}

Result<std::unique_ptr<Dispatcher>> Dispatcher::create(SwarmConfig config) {
    for (auto worker = config.workers.begin(); worker != config.workers.end(); ++worker) {
        if (worker->id && !config.identity) {
            return fail(ErrorKind::usage, "worker {}: a worker with a node id needs an identity of ours",
                        worker->address.text());
        }
        auto same = [&](const WorkerEndpoint& other) { return other.address == worker->address; };
        if (std::any_of(config.workers.begin(), worker, same)) {
            return fail(ErrorKind::usage, "worker {} is listed twice", worker->address.text());
        }
    }
    return std::make_unique<SwarmDispatcher>(config);
}

}  // namespace kvasir
