#include "backbone/swarm.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <exception>

namespace kvasir {
namespace {

constexpr std::chrono::milliseconds kHeartbeat{20};
constexpr std::size_t kMostThreads = 2;

AuditorOptions auditor_options(const SwarmConfig& config) {
    AuditorOptions options;
    options.budget = config.audit_budget;
    options.strict_reference = config.strict_reference;
    if (config.evidence.empty()) return options;
    options.keep = [directory = config.evidence](const Evidence& evidence) -> Result<std::string> {
        Result<std::filesystem::path> path = save(evidence, directory);
        if (!path) return fail(path.error());
        return path->string();
    };
    return options;
}

}  // namespace

Swarm::Swarm(const SwarmConfig& config) : work_(boost::asio::make_work_guard(context_)), heartbeat_(context_) {
    if (config.audit_reference && !config.workers.empty()) {
        auditor_ = std::make_unique<Auditor>(config.audit_reference, auditor_options(config));
    }
    for (const WorkerEndpoint& endpoint : config.workers) {
        LinkConfig link{endpoint,      config.identity, config.model_id, config.arithmetic,
                        config.timing, config.deadline, auditor_.get()};
        links_.push_back(std::make_shared<WorkerLink>(context_, std::move(link), shapes_, [this] { rebuild_book(); }));
    }
    if (links_.empty()) return;
    booked_.resize(links_.size());
    for (const auto& link : links_)
        link->tick(std::chrono::steady_clock::now());
    arm_heartbeat();
    for (std::size_t i = 0; i < std::min(links_.size(), kMostThreads); ++i)
        threads_.emplace_back([this] { run(); });
}

Swarm::~Swarm() {
    stop();
    context_.stop();
    threads_.clear();
    auditor_.reset();  // after those who submit to it, before what its verdicts reach
    links_.clear();
}

void Swarm::stop() {
    for (const auto& link : links_)
        link->stop();
}

void Swarm::run() {
    for (;;) {
        try {
            context_.run();
            return;
        } catch (const std::exception& error) {
            spdlog::error("while serving a connection to a worker: {}", error.what());
        }
    }
}

void Swarm::arm_heartbeat() {
    heartbeat_.expires_after(kHeartbeat);
    heartbeat_.async_wait([this](const boost::system::error_code& error) {
        if (error) return;
        for (const auto& link : links_)
            link->tick(std::chrono::steady_clock::now());
        arm_heartbeat();
    });
}

void Swarm::rebuild_book() {
    {
        std::scoped_lock rebuilding(rebuild_mutex_);
        std::vector<ReplicaBook::Entry> entries;
        for (std::uint32_t worker = 0; worker < links_.size(); ++worker) {
            entries.push_back(links_[worker]->pieces());
            entries.back().worker = worker;
        }
        std::vector<bool> booked;
        booked.reserve(entries.size());
        for (const ReplicaBook::Entry& entry : entries)
            booked.push_back(!entry.pieces.empty());
        auto book = std::make_shared<const ReplicaBook>(entries);
        std::scoped_lock lock(mutex_);
        book_ = std::move(book);
        booked_ = std::move(booked);
    }
    changed_.notify_all();
}

std::shared_ptr<const ReplicaBook> Swarm::book() const {
    std::scoped_lock lock(mutex_);
    return book_;
}

bool Swarm::wait(std::chrono::milliseconds timeout) const {
    // A link serves a moment before the book says so; whoever waited may count on the book.
    using State = WorkerStatus::State;
    auto serves = [this](std::size_t worker) {
        return booked_[worker] && links_[worker]->status().state == State::serving;
    };
    auto settled = [&](std::size_t worker) {
        return serves(worker) || links_[worker]->status().state == State::refused;
    };
    auto all_of = [this](auto holds) {
        for (std::size_t worker = 0; worker < links_.size(); ++worker) {
            if (!holds(worker)) return false;
        }
        return true;
    };
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, timeout, [&] { return all_of(settled); });
    return all_of(serves);
}

}  // namespace kvasir
