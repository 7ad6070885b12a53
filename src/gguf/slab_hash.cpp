#include "gguf/slab_hash.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <ctime>
#include <mutex>
#include <optional>
#include <thread>

namespace kvasir {
namespace {

// Small enough to stay in a core's second-level cache between reading and hashing.
constexpr std::size_t kBufferBytes = std::size_t{256} << 10;

double thread_cpu_seconds() {
    timespec now{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

class HashRun {
  public:
    HashRun(std::span<const HashJob> jobs, const HashSink& sink, const std::atomic<bool>* cancel)
        : jobs_(jobs), sink_(sink), cancel_(cancel) {}

    // Draws progress on the calling thread while `threads` others work.
    Result<HashStats> run(int threads, Progress& progress) {
        running_ = threads;
        std::vector<std::jthread> workers;
        workers.reserve(static_cast<std::size_t>(threads));
        for (int i = 0; i < threads; ++i)
            workers.emplace_back([this] { work(); });
        std::uint64_t shown = 0;
        for (bool ended = false; !ended;) {
            std::unique_lock lock(mutex_);
            ended = changed_.wait_for(lock, std::chrono::milliseconds(100), [this] { return running_ == 0; });
            lock.unlock();
            std::uint64_t done = done_bytes_;
            progress.add(done - shown);
            shown = done;
        }
        workers.clear();
        if (error_) return fail(*error_);
        return HashStats{shown, cpu_seconds_};
    }

  private:
    bool stopped() const { return stop_ || (cancel_ != nullptr && *cancel_); }

    void work() {
        Status status = hash_until_done();
        std::lock_guard lock(mutex_);
        if (!status && !error_) error_ = status.error();
        if (!status) stop_ = true;
        cpu_seconds_ += thread_cpu_seconds();
        --running_;
        changed_.notify_all();
    }

    Status hash_until_done() {
        ByteVector buffer(kBufferBytes);
        Sha256 hash;
        for (std::size_t job = next_++; job < jobs_.size(); job = next_++) {
            Result<Digest> digest = hash_one(jobs_[job], hash, buffer);
            if (!digest) return fail(digest.error());
            std::lock_guard lock(mutex_);
            if (Status taken = sink_(job, *digest); !taken) return taken;
        }
        return {};
    }

    Result<Digest> hash_one(const HashJob& job, Sha256& hash, std::span<std::byte> buffer) {
        for (std::uint64_t done = 0; done < job.bytes;) {
            if (stopped()) return fail(ErrorKind::unavailable, "interrupted");
            std::span<std::byte> chunk = buffer.first(std::min<std::uint64_t>(buffer.size(), job.bytes - done));
            Status read = job.file->read_at(job.offset + done, chunk);
            if (!read) return fail(read.error().within(job.path->string()));
            hash.update(chunk);
            done += chunk.size();
            done_bytes_ += chunk.size();
        }
        return hash.finish();
    }

    std::span<const HashJob> jobs_;
    const HashSink& sink_;
    const std::atomic<bool>* cancel_;
    std::atomic<std::size_t> next_ = 0;
    std::atomic<std::uint64_t> done_bytes_ = 0;
    std::atomic<bool> stop_ = false;
    std::mutex mutex_;
    std::condition_variable changed_;
    int running_ = 0;
    double cpu_seconds_ = 0;
    std::optional<Error> error_;
};

}  // namespace

Result<HashStats> hash_all(std::span<const HashJob> jobs, int threads, Progress& progress, const HashSink& sink,
                           const std::atomic<bool>* cancel) {
    auto useful = std::clamp<std::size_t>(static_cast<std::size_t>(std::max(threads, 1)), 1,
                                          std::max<std::size_t>(jobs.size(), 1));
    return HashRun(jobs, sink, cancel).run(static_cast<int>(std::min<std::size_t>(useful, 256)), progress);
}

int default_threads() {
    return static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
}

}  // namespace kvasir
