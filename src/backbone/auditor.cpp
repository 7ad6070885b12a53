#include "backbone/auditor.h"

#include <spdlog/spdlog.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <utility>

namespace kvasir {

namespace {

using std::chrono::steady_clock;

constexpr std::size_t kMostCases = 64;
constexpr double kHalving = 32;  // clean audits
constexpr int kLowestPriority = 19;

std::size_t differing(std::span<const float> left, std::span<const float> right) {
    std::size_t count = 0;
    for (std::size_t i = 0; i < left.size(); ++i)
        count += std::memcmp(&left[i], &right[i], sizeof(float)) != 0 ? 1 : 0;
    return count;
}

}  // namespace

double audit_share(const AuditBudget& budget, std::uint64_t clean) {
    const double share = budget.first_share * std::exp2(-static_cast<double>(clean) / kHalving);
    return std::max(share, budget.last_share);
}

Auditor::Auditor(std::shared_ptr<AuditReference> reference, const AuditBudget& budget)
    : reference_(std::move(reference)), budget_(budget), random_(std::random_device{}()), thread_([this] { run(); }) {}

Auditor::~Auditor() {
    {
        std::scoped_lock lock(mutex_);
        stopped_ = true;
    }
    changed_.notify_all();
    thread_.join();
}

std::vector<std::uint32_t> Auditor::choose(std::size_t pairs, double share, std::size_t most) {
    std::vector<std::uint32_t> chosen;
    std::size_t drawn = 0;
    std::uniform_real_distribution<double> lot(0, 1);
    std::scoped_lock lock(mutex_);
    for (std::uint32_t i = 0; i < pairs; ++i) {
        if (lot(random_) >= share) continue;
        ++drawn;
        if (chosen.size() < most) {
            chosen.push_back(i);
            continue;
        }
        // Reservoir sampling: the newcomer takes a place with probability most / drawn.
        const std::size_t place = std::uniform_int_distribution<std::size_t>(0, drawn - 1)(random_);
        if (place < most) chosen[place] = i;
    }
    return chosen;
}

void Auditor::submit(AuditQuestion question, std::vector<float> answer, std::weak_ptr<AuditSubject> subject,
                     std::uint64_t stamp) {
    {
        std::scoped_lock lock(mutex_);
        if (stopped_ || cases_.size() >= kMostCases) return;
        cases_.push_back({std::move(question), std::move(answer), std::move(subject), stamp});
    }
    changed_.notify_all();
}

void Auditor::run() {
    setpriority(PRIO_PROCESS, 0, kLowestPriority);  // on Linux: of this thread
    std::unique_lock lock(mutex_);
    while (true) {
        changed_.wait(lock, [this] { return stopped_ || !cases_.empty(); });
        if (stopped_) return;
        const Case open = std::move(cases_.front());
        cases_.pop_front();
        lock.unlock();
        const steady_clock::time_point start = steady_clock::now();
        judge(open);
        const std::chrono::duration<double> took = steady_clock::now() - start;
        lock.lock();
        // What it took must be no more than its share of the time until the next begins.
        changed_.wait_for(lock, took * (1 / budget_.compute - 1), [this] { return stopped_; });
    }
}

void Auditor::judge(const Case& open) {
    const AuditQuestion& question = open.question;
    std::vector<float> right(question.hidden);
    if (Status computed = reference_->compute(question, right); !computed) {
        spdlog::warn("layer {}, expert {}: cannot be audited: {}", question.layer, question.expert,
                     computed.error().message);
        return;
    }
    const std::shared_ptr<AuditSubject> subject = open.subject.lock();
    if (!subject) return;
    const std::size_t wrong = differing(open.answer, right);
    if (wrong == 0) return subject->acquitted(open.stamp);
    if (Status own = reference_->check_weights(question.layer, question.expert); !own) {
        spdlog::error(
            "layer {}, expert {}: a worker's answer differs from this machine's, but it is this machine whose "
            "weights are damaged: {}",
            question.layer, question.expert, own.error().message);
        return;
    }
    subject->convicted(fmt::format("layer {}, expert {}: {} of {} values of a row are not what this machine computes",
                                   question.layer, question.expert, wrong, question.hidden));
}

}  // namespace kvasir
