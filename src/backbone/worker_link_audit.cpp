// What a link has audited of its worker's answers, and what comes of it.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "backbone/worker_link.h"

namespace kvasir {
namespace {

constexpr std::size_t kMostSamples = 4;  // of one request

}  // namespace

std::vector<WorkerLink::Sample> WorkerLink::draw_samples(const Compute& compute, double share) const {
    std::vector<Sample> samples;
    if (config_.auditor == nullptr) return samples;
    const std::size_t size = row_bytes(compute.encoding, compute.hidden);
    for (std::uint32_t i : config_.auditor->choose(compute.pairs.size(), share, kMostSamples)) {
        const ByteSpan row = compute.rows.subspan(compute.pairs[i].row * size, size);
        samples.push_back({i,
                           {compute.layer,
                            compute.pairs[i].expert,
                            compute.hidden,
                            compute.recipe,
                            compute.encoding,
                            {row.begin(), row.end()}}});
    }
    return samples;
}

void WorkerLink::audit(std::vector<Sample> samples, std::span<const float> rows) {
    if (samples.empty()) return;
    std::uint64_t used = 0;
    {
        std::scoped_lock lock(mutex_);
        used = pairs_used_;
    }
    for (Sample& sample : samples) {
        const std::size_t hidden = sample.question.hidden;
        const std::span<const float> row = rows.subspan(sample.place * hidden, hidden);
        config_.auditor->submit(std::move(sample.question), {row.begin(), row.end()}, weak_from_this(), used);
    }
}

double WorkerLink::share_to_audit() const {
    if (config_.auditor == nullptr) return 0;
    std::scoped_lock lock(mutex_);
    return audit_share(config_.auditor->budget(), audits_);
}

void WorkerLink::acquitted(std::uint64_t stamp) {
    std::scoped_lock lock(mutex_);
    ++audits_;
    pairs_trusted_ = std::max(pairs_trusted_, stamp);
}

void WorkerLink::convicted(const std::string& what) {
    Aftermath after;
    {
        std::scoped_lock lock(mutex_);
        if (phase_ == Phase::stopped) return;
        spdlog::error(
            "worker {}: gave a wrong answer: {}. It is asked no more. {} of its answers were used, {} of them since "
            "the "
            "last one that was found right ({} were audited): do not trust what was written with them",
            name_, what, pairs_used_, pairs_used_ - pairs_trusted_, audits_ + 1);
        ++failures_;
        phase_ = Phase::stopped;
        lose({ErrorKind::mismatch, fmt::format("gave a wrong answer: {}", what)}, true, after);
    }
    finish(after);
}

}  // namespace kvasir
