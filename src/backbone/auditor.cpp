#include "backbone/auditor.h"

#include <spdlog/spdlog.h>
#include <sys/resource.h>

#include <chrono>
#include <cstring>
#include <utility>

namespace kvasir {

namespace {

using std::chrono::steady_clock;

constexpr std::size_t kMostCases = 64;
constexpr int kLowestPriority = 19;

Evidence evidence_of(const AuditCase& open, ByteVector right) {
    return {open.proof->context, open.question.terms, open.question.row,
            open.answer,         std::move(right),    open.proof->payload};
}

}  // namespace

std::size_t differing_values(RowEncoding encoding, ByteSpan left, ByteSpan right) {
    const bool narrow = encoding == RowEncoding::i16x256;
    const std::size_t size = narrow ? sizeof(std::int16_t) : sizeof(float);
    constexpr std::size_t kBlock = 257;  // an exponent, and the values it counts for
    std::size_t count = 0;
    bool same_exponent = true;
    for (std::size_t i = 0; (i + 1) * size <= right.size(); ++i) {
        const std::size_t at = i * size;
        const bool same = at + size <= left.size() && std::memcmp(left.data() + at, right.data() + at, size) == 0;
        if (narrow && i % kBlock == 0) {
            same_exponent = same;
        } else if (!same || !same_exponent) {
            ++count;
        }
    }
    return count;
}

Auditor::Auditor(std::shared_ptr<AuditReference> reference, AuditorOptions options)
    : reference_(std::move(reference)),
      options_(std::move(options)),
      random_(std::random_device{}()),
      thread_([this] { run(); }) {}

Auditor::~Auditor() {
    {
        std::scoped_lock lock(mutex_);
        stopped_ = true;
    }
    changed_.notify_all();
    thread_.join();
}

std::vector<std::uint32_t> Auditor::choose(std::size_t pairs, double share, std::size_t most) {
    std::scoped_lock lock(mutex_);
    return choose_pairs(random_, pairs, share, most);
}

void Auditor::submit(AuditCase open) {
    {
        std::scoped_lock lock(mutex_);
        if (stopped_) return;
        enter(std::move(open));
    }
    changed_.notify_all();
}

// Of more than can wait, each waits with the same chance: a worker has a say in the order they come in.
void Auditor::enter(AuditCase open) {
    if (open.urgent) return cases_.push_front(std::move(open));
    if (cases_.size() < kMostCases) {
        cases_.push_back(std::move(open));
        offered_ = cases_.size();
        return;
    }
    const std::size_t place = std::uniform_int_distribution<std::size_t>(0, offered_++)(random_);
    if (place < cases_.size() && !cases_[place].urgent) cases_[place] = std::move(open);
}

bool Auditor::agrees(const AuditQuestion& question, ByteSpan answer) {
    ByteVector right(row_bytes(question.terms.answer, question.terms.hidden));
    std::scoped_lock lock(strict_mutex_);
    if (Status computed = options_.strict_reference->compute(question, right); !computed) {
        spdlog::warn("layer {}, expert {}: cannot be checked before use: {}", question.terms.layer,
                     question.terms.expert, computed.error().message);
        return false;
    }
    return std::ranges::equal(answer, right);
}

void Auditor::run() {
    setpriority(PRIO_PROCESS, 0, kLowestPriority);  // on Linux: of this thread
    std::unique_lock lock(mutex_);
    while (true) {
        changed_.wait(lock, [this] { return stopped_ || !cases_.empty(); });
        if (stopped_) return;
        const AuditCase open = std::move(cases_.front());
        cases_.pop_front();
        lock.unlock();
        const steady_clock::time_point start = steady_clock::now();
        judge(open);
        const std::chrono::duration<double> took = steady_clock::now() - start;
        lock.lock();
        // What it took must be no more than its share of the time until the next begins.
        changed_.wait_for(lock, took * (1 / options_.budget.compute - 1),
                          [this] { return stopped_ || (!cases_.empty() && cases_.front().urgent); });
    }
}

void Auditor::judge(const AuditCase& open) {
    const AnswerTerms& terms = open.question.terms;
    ByteVector right(row_bytes(terms.answer, terms.hidden));
    if (Status computed = reference_->compute(open.question, right); !computed) {
        spdlog::warn("layer {}, expert {}: cannot be audited: {}", terms.layer, terms.expert, computed.error().message);
        return;
    }
    const std::shared_ptr<AuditSubject> subject = open.subject.lock();
    if (!subject) return;
    std::optional<Error> unproven;
    if (open.proof) {
        const Result<NodeId> signer = signer_of(evidence_of(open, {}));
        if (!signer) unproven = signer.error();
    }
    const std::size_t wrong = differing_values(terms.answer, open.answer, right);
    if (wrong == 0 && !unproven) return subject->acquitted(open.stamp);
    if (wrong == 0) {
        return subject->convicted(fmt::format("layer {}, expert {}: what it signed is not what it answered: {}",
                                              terms.layer, terms.expert, unproven->message));
    }
    if (Status own = reference_->check_weights(terms.layer, terms.expert); !own) {
        spdlog::error(
            "layer {}, expert {}: a worker's answer differs from this machine's, but it is this machine whose "
            "weights are damaged: {}",
            terms.layer, terms.expert, own.error().message);
        return;
    }
    const std::string evidence = open.proof && !unproven ? keep_evidence(open, std::move(right))
                                                         : "it did not sign it, so others cannot be shown";
    subject->convicted(
        fmt::format("layer {}, expert {}: {} of {} values of a row are not what this machine computes; "
                    "{}",
                    terms.layer, terms.expert, wrong, terms.hidden, evidence));
}

std::string Auditor::keep_evidence(const AuditCase& open, ByteVector right) const {
    if (!options_.keep) return "the evidence is not kept";
    const Result<std::string> where = options_.keep(evidence_of(open, std::move(right)));
    if (!where) return fmt::format("the evidence could not be kept: {}", where.error().message);
    return fmt::format("the evidence is in {} (kvasir audit check)", *where);
}

}  // namespace kvasir
