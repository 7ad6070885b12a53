#include "fetch/download.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/progress.h"
#include "base/units.h"
#include "fetch/part_file.h"
#include "fetch/slab_queue.h"
#include "fetch/transfer.h"
#include "gguf/slab_hash.h"

namespace kvasir::fetch {
namespace {

using Clock = std::chrono::steady_clock;

// A request should take about so long: long enough not to matter, short enough that none is waited for at the end.
constexpr double kRequestSeconds = 4;
constexpr std::uint64_t kFirstRequest = 4 << 20;
constexpr std::uint64_t kLeastRequest = 1 << 20;
constexpr std::uint64_t kMostRequest = 64 << 20;
constexpr std::chrono::milliseconds kLook{100};  // how often progress and `cancel` are looked at

// One run of a download: connections on threads of their own, sharing queue, sources and journal.
class Download {
  public:
    Download(const Manifest& manifest, const FetchPlan& plan, const std::vector<Source>& sources, PartFile& part,
             SlabQueue queue, const FetchOptions& options)
        : manifest_(manifest),
          plan_(plan),
          sources_(sources),
          part_(part),
          options_(options),
          queue_(std::move(queue)),
          book_(sources),
          origins_(plan.slabs.size(), kUnknown),
          shown_(plan.slabs.size()),
          last_byte_(Clock::now()) {
        for (std::size_t i = 0; i < shown_.size(); ++i)
            shown_[i] = queue_.arrived(i);
    }

    Status run() {
        const std::uint64_t missing = queue_.missing_bytes();
        const std::uint64_t here = plan_.slab_bytes - missing;
        Progress progress(here == 0 ? "downloading" : fmt::format("downloading ({} are here)", human_bytes(here)),
                          missing, ProgressUnit::bytes, options_.quiet);
        const auto threads = static_cast<std::size_t>(std::clamp(options_.connections, 1, 64));
        working_ = threads;
        std::vector<std::thread> workers;
        for (std::size_t i = 0; i < threads; ++i)
            workers.emplace_back([this] { work(); });
        watch(progress);
        for (std::thread& worker : workers)
            worker.join();
        progress.finish();
        return error_ ? Status(fail(*error_)) : Status{};
    }

    bool anything_arrived() const { return fresh_ > 0; }

    void tell(FetchReport& report) const {
        report.moved_bytes = moved_;
        report.sources = book_.report();
        for (const SourceReport& source : report.sources)
            report.requests += source.requests;
    }

  private:
    static constexpr std::size_t kUnknown = SIZE_MAX;

    struct Job {
        Stretch stretch;
        std::size_t source = 0;
        std::uint64_t had = 0;  // of the first slab
    };

    // A transfer's way back into the shared state.
    class Events : public TransferEvents {
      public:
        Events(Download& download, const Job& job) : download_(download), job_(job) {}
        Status arrived(std::size_t slab, std::uint64_t bytes) override {
            return download_.arrived(slab, bytes, job_.source);
        }
        void moved(std::uint64_t bytes) override {
            moved_ += bytes;
            download_.moved(job_.source, bytes);
        }
        bool same_origin(std::size_t slab) const override { return download_.origin(slab) == job_.source; }
        std::uint64_t total() const { return moved_; }

      private:
        Download& download_;
        const Job& job_;
        std::uint64_t moved_ = 0;
    };

    void watch(Progress& progress) {
        std::uint64_t drawn = 0;
        std::unique_lock lock(mutex_);
        while (working_ > 0) {
            changed_.wait_for(lock, kLook, [this] { return working_ == 0; });
            if (options_.cancel != nullptr && *options_.cancel && !stop_) {
                give_up({ErrorKind::unavailable, "interrupted; the same command goes on from here"});
            }
            progress.add(fresh_ - drawn);
            drawn = fresh_;
        }
    }

    void work() {
        std::vector<std::optional<http::Client>> clients(sources_.size());
        while (std::optional<Job> job = next_job()) {
            std::optional<http::Client>& client = clients[job->source];
            if (!client) {
                http::ClientOptions settings = options_.client;
                settings.trust = sources_[job->source].trust;
                settings.cancel = &stop_;
                client.emplace(settings);
            }
            Events events(*this, *job);
            const Clock::time_point start = Clock::now();
            const Outcome outcome = transfer(*client, sources_[job->source].file(manifest_, job->stretch.file), plan_,
                                             job->stretch, job->had, part_, events);
            settle(*job, outcome, events.total(), Clock::now() - start);
        }
        std::lock_guard lock(mutex_);
        --working_;
        changed_.notify_all();
    }

    // Waits for something to do; none: it is done, or there is no point in going on.
    std::optional<Job> next_job() {
        std::unique_lock lock(mutex_);
        while (!stop_ && (!queue_.empty() || in_flight_ > 0)) {
            if (queue_.empty()) {
                changed_.wait(lock);  // what is in flight may come back
                continue;
            }
            const Clock::time_point now = Clock::now();
            const auto source = book_.choose(now, static_cast<std::size_t>(options_.connections));
            if (source) return begin(*source);
            const std::optional<Clock::time_point> chance = book_.next_chance();
            const Clock::time_point end = last_byte_ + options_.patience;
            if (!chance) {
                give_up({ErrorKind::invalid, "no source is left: " + book_.troubles()});
            } else if (now >= end && in_flight_ == 0) {
                give_up({ErrorKind::unavailable,
                         fmt::format("nothing has come for {}: {}; the same command goes on "
                                     "from here",
                                     human_seconds(std::chrono::duration<double>(now - last_byte_).count()),
                                     book_.troubles())});
            } else {
                changed_.wait_until(lock, now < end ? std::min(*chance, end) : *chance);
            }
        }
        return std::nullopt;
    }

    Job begin(std::size_t source) {
        const double speed = book_.speed(source);
        std::uint64_t most = kFirstRequest;
        if (speed > 0)
            most = std::clamp(static_cast<std::uint64_t>(speed * kRequestSeconds), kLeastRequest, kMostRequest);
        // What is left is shared out, so that all connections end together.
        const std::uint64_t fair = queue_.missing_bytes() / static_cast<std::uint64_t>(options_.connections);
        most = std::min(most, std::max(fair, kLeastRequest));
        Job job{*queue_.take(most), source, 0};
        job.had = queue_.arrived(job.stretch.first);
        book_.begin(source);
        ++in_flight_;
        return job;
    }

    void settle(const Job& job, const Outcome& outcome, std::uint64_t bytes, Clock::duration time) {
        std::lock_guard lock(mutex_);
        --in_flight_;
        for (std::size_t i = job.stretch.first; i < job.stretch.first + job.stretch.count; ++i) {
            if (queue_.arrived(i) < plan_.slabs[i].bytes) queue_.give_back(i);
        }
        const std::string name = sources_[job.source].base.text();
        const bool named = outcome.error.message.starts_with(name);
        const std::string why = named ? outcome.error.message : fmt::format("{}: {}", name, outcome.error.message);
        switch (outcome.kind) {
            case Outcome::Kind::complete:
                book_.succeeded(job.source, bytes, time);
                break;
            case Outcome::Kind::leftover:
                spdlog::debug("{}", outcome.error.message);
                book_.release(job.source);
                break;
            case Outcome::Kind::retry:
                if (!stop_) spdlog::debug("{}", why);
                book_.failed(job.source, why, Clock::now(), outcome.pause);
                break;
            case Outcome::Kind::liar:
                if (!stop_) spdlog::warn("{}; not asked again", why);
                book_.drop(job.source, why);
                break;
            case Outcome::Kind::fatal:
                book_.release(job.source);
                give_up(outcome.error);
                break;
        }
        changed_.notify_all();
    }

    Status arrived(std::size_t slab, std::uint64_t bytes, std::size_t source) {
        std::lock_guard lock(mutex_);
        // The first part of a slab says whose it is; a part of somebody else's makes it nobody's.
        const bool first = queue_.arrived(slab) == 0;
        origins_[slab] = first || origins_[slab] == source ? source : kUnknown;
        queue_.set_arrived(slab, bytes);
        // What has to be fetched again does not count twice.
        if (bytes > shown_[slab]) {
            fresh_ += bytes - shown_[slab];
            shown_[slab] = bytes;
        }
        return part_.note(plan_.slabs[slab].target, bytes);
    }

    void moved(std::size_t source, std::uint64_t bytes) {
        std::lock_guard lock(mutex_);
        moved_ += bytes;
        book_.count(source, bytes);
        last_byte_ = Clock::now();
    }

    std::size_t origin(std::size_t slab) const {
        std::lock_guard lock(mutex_);
        return origins_[slab];
    }

    // The first reason counts. Called with the lock held.
    void give_up(Error error) {
        if (!error_) error_ = std::move(error);
        stop_ = true;
        changed_.notify_all();
    }

    const Manifest& manifest_;
    const FetchPlan& plan_;
    const std::vector<Source>& sources_;
    PartFile& part_;
    const FetchOptions& options_;

    mutable std::mutex mutex_;
    std::condition_variable changed_;
    SlabQueue queue_;
    SourceBook book_;
    std::vector<std::size_t> origins_;  // of what has arrived of each slab: a source, or kUnknown
    std::vector<std::uint64_t> shown_;  // of each slab, the most that ever was there
    std::uint64_t fresh_ = 0;           // all that has arrived in this run, each byte counted once
    std::uint64_t moved_ = 0;
    std::size_t in_flight_ = 0;
    std::size_t working_ = 0;
    Clock::time_point last_byte_;
    std::optional<Error> error_;
    std::atomic<bool> stop_ = false;
};

// Hashes whole slabs that are in `file`; `sink` hears whether each is right.
Status check_slabs(const FetchPlan& plan, const File& file, const std::filesystem::path& path,
                   const std::vector<std::size_t>& slabs, const FetchOptions& options,
                   const std::function<Status(std::size_t slab, bool right)>& sink) {
    std::vector<HashJob> jobs;
    std::uint64_t total = 0;
    for (const std::size_t slab : slabs) {
        jobs.push_back({&file, &path, plan.slabs[slab].target, plan.slabs[slab].bytes});
        total += plan.slabs[slab].bytes;
    }
    Progress progress("checking what is there", total, ProgressUnit::bytes, options.quiet);
    const auto take = [&](std::size_t job, const Digest& digest) {
        return sink(slabs[job], digest == plan.slabs[slabs[job]].digest);
    };
    Result<HashStats> hashed = hash_all(jobs, default_threads(), progress, take, options.cancel);
    return hashed ? Status{} : fail(hashed.error());
}

// Which slabs of a file at `out` are right: none where it is no slice of this plan.
Result<std::vector<std::size_t>> right_slabs(const FetchPlan& plan, const std::filesystem::path& out,
                                             const FetchOptions& options) {
    std::vector<std::size_t> right;
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(out, ignored) || std::filesystem::file_size(out, ignored) != plan.size) {
        return right;
    }
    Result<File> file = File::open(out);
    if (!file) return fail(file.error());
    ByteVector header(plan.header.size());
    if (Status read = file->read_at(0, header); !read) return fail(read.error().within(out.string()));
    if (header != plan.header) return right;
    std::vector<std::size_t> all(plan.slabs.size());
    for (std::size_t i = 0; i < all.size(); ++i)
        all[i] = i;
    const auto keep = [&](std::size_t slab, bool is_right) -> Status {
        if (is_right) right.push_back(slab);
        return {};
    };
    Status checked = check_slabs(plan, *file, out, all, options, keep);
    if (!checked) return fail(checked.error());
    return right;
}

// What an earlier run left. Whole slabs are hashed now; a part of one is when the rest of it has come.
Status restore(const FetchPlan& plan, PartFile& part, SlabQueue& queue, const FetchOptions& options) {
    std::vector<std::size_t> whole;
    const Arrived& arrived = part.arrived();
    for (std::size_t i = 0; i < plan.slabs.size(); ++i) {
        const auto found = arrived.find(plan.slabs[i].target);
        if (found == arrived.end()) continue;
        if (found->second == plan.slabs[i].bytes) whole.push_back(i);
        if (found->second < plan.slabs[i].bytes) queue.set_arrived(i, found->second);
    }
    const auto keep = [&](std::size_t slab, bool right) -> Status {
        if (right) queue.set_arrived(slab, plan.slabs[slab].bytes);
        return right ? Status{} : part.note(plan.slabs[slab].target, 0);
    };
    return check_slabs(plan, part.file(), part.path(), whole, options, keep);
}

}  // namespace

Result<FetchReport> fetch_slice(const Manifest& manifest, const std::vector<Piece>& pieces,
                                const std::vector<Source>& sources, const std::filesystem::path& out,
                                const FetchOptions& options) {
    const Clock::time_point start = Clock::now();
    Result<FetchPlan> plan = make_plan(manifest, pieces);
    if (!plan) return fail(plan.error());
    FetchReport report;
    report.size = plan->size;
    report.slab_bytes = plan->slab_bytes;
    const auto took = [&] { report.seconds = std::chrono::duration<double>(Clock::now() - start).count(); };
    Result<std::vector<std::size_t>> right = right_slabs(*plan, out, options);
    if (!right) return fail(right.error());
    if (right->size() == plan->slabs.size()) {
        report.resumed_bytes = plan->slab_bytes;
        took();
        return report;
    }
    if (!right->empty()) {
        spdlog::warn("{}: {} of its {} slabs are damaged and downloaded again", out.string(),
                     plan->slabs.size() - right->size(), plan->slabs.size());
    }
    if (sources.empty()) return fail(ErrorKind::usage, "there is nowhere to download from: name a hub or a mirror");
    Result<PartFile> part = PartFile::open(out, *plan, !right->empty());
    if (!part) return fail(part.error());
    SlabQueue queue(*plan);
    if (Status restored = restore(*plan, *part, queue, options); !restored) return fail(restored.error());
    // A damaged slice that has become the part file has no journal yet.
    if (!std::filesystem::exists(out)) {
        for (const std::size_t slab : *right) {
            queue.set_arrived(slab, plan->slabs[slab].bytes);
            if (Status noted = part->note(plan->slabs[slab].target, plan->slabs[slab].bytes); !noted) {
                return fail(noted.error());
            }
        }
    }
    report.resumed_bytes = plan->slab_bytes - queue.missing_bytes();
    Download download(manifest, *plan, sources, *part, std::move(queue), options);
    const Status done = download.run();
    download.tell(report);
    if (!done) {
        if (report.resumed_bytes == 0 && !download.anything_arrived()) part->discard();
        return fail(done.error());
    }
    if (Status committed = part->commit(); !committed) return fail(committed.error());
    took();
    return report;
}

}  // namespace kvasir::fetch
