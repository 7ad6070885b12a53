// All workers of a backbone: their links, the threads that drive them, and who holds what.
#pragma once

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "backbone/dispatcher.h"
#include "backbone/probe_shapes.h"
#include "backbone/replica_book.h"
#include "backbone/worker_link.h"

namespace kvasir {

// Thread-safe. Connects at once, in the background; without workers there are no threads.
class Swarm {
  public:
    explicit Swarm(const SwarmConfig& config);
    // Requests still in flight fail first.
    ~Swarm();
    Swarm(const Swarm&) = delete;
    Swarm& operator=(const Swarm&) = delete;

    // The snapshot in force; its worker numbers index links().
    std::shared_ptr<const ReplicaBook> book() const;
    std::span<const std::shared_ptr<WorkerLink>> links() const { return links_; }
    ProbeShapes& shapes() { return *shapes_; }
    // Ends all connections: whoever waits for an answer is told that none comes.
    void stop();
    // Until every worker serves or is refused for good. True if all serve.
    bool wait(std::chrono::milliseconds timeout) const;

  private:
    void rebuild_book();
    void arm_heartbeat();
    void run();

    std::unique_ptr<Auditor> auditor_;  // null: no audits
    std::shared_ptr<ProbeShapes> shapes_ = std::make_shared<ProbeShapes>();
    std::vector<std::shared_ptr<WorkerLink>> links_;

    std::mutex rebuild_mutex_;  // so that an older book never replaces a newer one
    mutable std::mutex mutex_;
    mutable std::condition_variable changed_;
    std::shared_ptr<const ReplicaBook> book_ = std::make_shared<ReplicaBook>();
    std::vector<bool> booked_;  // by worker: the book holds pieces of it

    // Last: handlers still pending in it use the members above until it is gone.
    boost::asio::io_context context_;
    boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
    boost::asio::steady_timer heartbeat_;
    std::vector<std::jthread> threads_;
};

}  // namespace kvasir
