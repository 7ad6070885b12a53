#include "worker/batcher.h"

#include <algorithm>
#include <map>
#include <utility>

namespace kvasir {

namespace {

using std::chrono::steady_clock;

std::uint32_t microseconds(steady_clock::duration duration) {
    const auto count = std::chrono::duration_cast<std::chrono::microseconds>(duration).count();
    return static_cast<std::uint32_t>(std::clamp<std::int64_t>(count, 0, UINT32_MAX));
}

std::uint64_t result_bytes(const Job& job) {
    return job.compute.pairs.size() * row_bytes(output_encoding(job.arithmetic), job.compute.hidden);
}

bool belong_together(const Job& left, const Job& right) {
    return left.compute.layer == right.compute.layer && left.compute.recipe == right.compute.recipe &&
           left.arithmetic == right.arithmetic;
}

Error stopped_error() {
    return {ErrorKind::unavailable, "the worker is stopping"};
}

// All jobs' pairs in one held piece.
struct Merged {
    std::vector<Pair> pairs;
    std::vector<std::byte*> out;  // where each pair's row goes
};

}  // namespace

Result<std::unique_ptr<Batcher>> Batcher::create(int threads, const BatcherLimits& limits) {
    Engines engines;
    for (Arithmetic arithmetic : known_arithmetics()) {
        Result<std::unique_ptr<Engine>> engine = Engine::create(arithmetic, threads);
        if (!engine) return fail(engine.error());
        engines[arithmetic] = std::move(*engine);
    }
    return std::unique_ptr<Batcher>(new Batcher(std::move(engines), limits));
}

Batcher::Batcher(Engines engines, const BatcherLimits& limits)
    : limits_(limits), engines_(std::move(engines)), thread_([this] { run(); }) {}

Batcher::~Batcher() {
    stop();
}

Status Batcher::submit(JobPtr job) {
    std::scoped_lock lock(mutex_);
    if (stopped_) return fail(stopped_error());
    const std::uint64_t bytes = job->payload.size();
    if (queue_.size() >= limits_.jobs || (!queue_.empty() && queue_bytes_ + bytes > limits_.bytes)) {
        return fail(ErrorKind::unavailable, "{} requests ({} bytes) wait already", queue_.size(), queue_bytes_);
    }
    queue_bytes_ += bytes;
    queue_.push_back(std::move(job));
    work_.notify_one();
    return {};
}

bool Batcher::compute_now(const JobPtr& job) {
    {
        std::scoped_lock lock(mutex_);
        if (stopped_ || computing_ || !queue_.empty()) return false;
        computing_ = true;
    }
    compute({job});
    finish_computing();
    return true;
}

bool Batcher::cancel(const Job* job) {
    JobPtr dropped;  // destroyed after the lock
    std::scoped_lock lock(mutex_);
    auto found = std::ranges::find(queue_, job, [](const JobPtr& queued) { return queued.get(); });
    if (found == queue_.end()) return false;
    queue_bytes_ -= (*found)->payload.size();
    dropped = std::move(*found);
    queue_.erase(found);
    if (queue_.empty() && !computing_) idle_.notify_all();
    return true;
}

void Batcher::stop() {
    std::deque<JobPtr> left;
    {
        std::scoped_lock lock(mutex_);
        stopped_ = true;
        left.swap(queue_);
        queue_bytes_ = 0;
        work_.notify_all();
        idle_.notify_all();
    }
    for (const JobPtr& job : left)
        job->done(fail(stopped_error()));
    if (thread_.joinable()) thread_.join();
    std::unique_lock lock(mutex_);
    idle_.wait(lock, [this] { return !computing_; });  // compute_now() on another thread
}

bool Batcher::wait_idle(std::chrono::milliseconds timeout) {
    std::unique_lock lock(mutex_);
    return idle_.wait_for(lock, timeout, [this] { return queue_.empty() && !computing_; });
}

std::uint32_t Batcher::waiting() const {
    std::scoped_lock lock(mutex_);
    return static_cast<std::uint32_t>(queue_.size());
}

BatcherStats Batcher::stats() const {
    std::scoped_lock lock(mutex_);
    return stats_;
}

void Batcher::run() {
    while (true) {
        std::vector<JobPtr> batch;
        {
            std::unique_lock lock(mutex_);
            work_.wait(lock, [this] { return stopped_ || (!queue_.empty() && !computing_); });
            if (stopped_) return;
            batch = take_batch();
            computing_ = true;
        }
        compute(batch);
        finish_computing();
    }
}

void Batcher::finish_computing() {
    std::scoped_lock lock(mutex_);
    computing_ = false;
    if (!queue_.empty()) {
        work_.notify_one();
    } else {
        idle_.notify_all();
    }
}

// The longest-waiting job, and what else waits for its layer as far as the memory bound allows.
std::vector<JobPtr> Batcher::take_batch() {
    std::vector<JobPtr> batch = {queue_.front()};
    std::uint64_t bytes = result_bytes(*batch.front());
    for (auto job = std::next(queue_.begin()); job != queue_.end(); ++job) {
        if (!belong_together(**job, *batch.front())) continue;
        bytes += result_bytes(**job);
        if (bytes > limits_.batch_bytes) break;
        batch.push_back(*job);
    }
    std::erase_if(queue_, [&](const JobPtr& job) { return std::ranges::find(batch, job) != batch.end(); });
    for (const JobPtr& job : batch)
        queue_bytes_ -= job->payload.size();
    return batch;
}

void Batcher::compute(const std::vector<JobPtr>& batch) {
    const steady_clock::time_point start = steady_clock::now();
    std::vector<ResultBuffer> results;
    Status status;
    try {
        for (const JobPtr& job : batch) {
            results.push_back(make_result_buffer(static_cast<std::uint32_t>(job->compute.pairs.size()),
                                                 job->compute.hidden, output_encoding(job->arithmetic)));
        }
        const bool alone = batch.size() == 1 && batch.front()->parts.size() == 1;
        status = alone ? compute_alone(*batch.front(), results.front()) : compute_together(batch, results);
    } catch (const std::exception& error) {  // no memory, most likely
        status = fail(ErrorKind::internal, "computing failed: {}", error.what());
    }
    const std::uint32_t compute_us = microseconds(steady_clock::now() - start);
    const std::uint64_t weight_bytes = distinct_bytes(batch);
    {
        std::scoped_lock lock(mutex_);
        ++stats_.batches;
        stats_.compute_us += compute_us;
        stats_.weight_bytes += weight_bytes;
        for (const JobPtr& job : batch) {
            ++stats_.jobs;
            stats_.pairs += job->compute.pairs.size();
            stats_.queue_us += microseconds(start - job->arrival);
        }
    }
    for (std::size_t i = 0; i < batch.size(); ++i) {
        if (!status) {
            batch[i]->done(fail(status.error()));
            continue;
        }
        set_result_times(results[i], microseconds(start - batch[i]->arrival), compute_us);
        batch[i]->done(std::move(results[i]));
    }
}

// The usual case: rows read where the frame put them, results written where the answer is sent from.
Status Batcher::compute_alone(const Job& job, ResultBuffer& result) {
    const JobPart& part = job.parts.front();
    return engines_.at(job.arithmetic)
        ->compute(part.held->weights, job.compute.recipe, job.compute.rows, part.pairs, result.rows);
}

Status Batcher::compute_together(const std::vector<JobPtr>& batch, std::vector<ResultBuffer>& results) {
    const Compute& first = batch.front()->compute;
    const Arithmetic arithmetic = batch.front()->arithmetic;
    const std::size_t row_size = row_bytes(first.encoding, first.hidden);
    const std::size_t out_size = row_bytes(output_encoding(arithmetic), first.hidden);
    std::map<const HeldPiece*, Merged> pieces;
    ByteVector copied;
    ByteSpan rows = first.rows;
    for (std::size_t i = 0; i < batch.size(); ++i) {
        const auto first_row = static_cast<std::uint32_t>(copied.size() / row_size);
        if (batch.size() > 1) {
            copied.insert(copied.end(), batch[i]->compute.rows.begin(), batch[i]->compute.rows.end());
            rows = copied;
        }
        for (const JobPart& part : batch[i]->parts) {
            Merged& merged = pieces[part.held];
            for (std::size_t k = 0; k < part.pairs.size(); ++k) {
                merged.pairs.push_back({first_row + part.pairs[k].row, part.pairs[k].expert});
                merged.out.push_back(results[i].rows.data() + part.places[k] * out_size);
            }
        }
    }
    ByteVector out;
    for (const auto& [held, merged] : pieces) {
        out.resize(merged.pairs.size() * out_size);
        Status status = engines_.at(arithmetic)->compute(held->weights, first.recipe, rows, merged.pairs, out);
        if (!status) return status;
        for (std::size_t k = 0; k < merged.out.size(); ++k) {
            std::ranges::copy(std::span(out).subspan(k * out_size, out_size), merged.out[k]);
        }
    }
    return {};
}

std::uint64_t Batcher::distinct_bytes(const std::vector<JobPtr>& batch) {
    std::map<const HeldPiece*, std::vector<std::uint8_t>> seen;
    std::uint64_t bytes = 0;
    for (const JobPtr& job : batch) {
        for (const JobPart& part : job->parts) {
            std::vector<std::uint8_t>& experts = seen[part.held];
            experts.resize(part.held->piece.count);
            for (const Pair& pair : part.pairs) {
                if (std::exchange(experts[pair.expert], std::uint8_t{1}) == 0) bytes += part.held->expert_bytes;
            }
        }
    }
    return bytes;
}

}  // namespace kvasir
