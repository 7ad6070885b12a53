// What a link tells of itself.
#include <spdlog/spdlog.h>

#include "backbone/worker_link.h"

namespace kvasir {

using State = WorkerStatus::State;

State WorkerLink::state() const {
    if (phase_ != Phase::up) return refused_ ? State::refused : State::connecting;
    if (draining_) return State::draining;
    return on_probation_ || doubted_ ? State::set_aside : State::serving;
}

void WorkerLink::announce(Aftermath& after) {
    State now = state();
    if (now == announced_ && reason_ == announced_reason_) return;
    announced_ = now;
    announced_reason_ = reason_;
    after.changed = true;
    if (phase_ == Phase::stopped) return;
    if (now == State::serving) {
        spdlog::info("worker {}: serving {}", name_, describe(pieces_));
    } else {
        spdlog::warn("worker {}: {}: {}", name_, state_name(now), reason_);
    }
}

ReplicaBook::Entry WorkerLink::pieces() const {
    std::scoped_lock lock(mutex_);
    return {0, epoch_, phase_ == Phase::up && !draining_ ? pieces_ : std::vector<Piece>()};
}

WorkerStatus WorkerLink::status() const {
    std::scoped_lock lock(mutex_);
    WorkerStatus status;
    status.endpoint = config_.endpoint;
    status.state = state();
    status.reason = reason_;
    for (const Piece& piece : pieces_)
        status.experts_held += piece.count;
    status.pairs = pairs_used_;
    status.failures = failures_;
    status.audits = audits_;
    status.latency_ms = latency_.median() * 1e3;
    return status;
}

std::uint64_t WorkerLink::bytes_sent() const {
    std::scoped_lock lock(mutex_);
    return earlier_sent_ + (connection_ ? connection_->bytes_sent() : 0);
}

std::uint64_t WorkerLink::bytes_received() const {
    std::scoped_lock lock(mutex_);
    return earlier_received_ + (connection_ ? connection_->bytes_received() : 0);
}

}  // namespace kvasir
