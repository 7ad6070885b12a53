// What a link has audited of its worker's answers, and what comes of it.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "backbone/worker_link.h"
#include "expert/layer_weights.h"
#include "net/signature.h"

namespace kvasir {
namespace {

// Requests with samples whose answers are not signed yet. A worker signs a few times a second.
constexpr std::size_t kMostUnsigned = 64;

}  // namespace

std::vector<WorkerLink::Sample> WorkerLink::draw_samples(const Compute& compute, double share) const {
    std::vector<Sample> samples;
    if (config_.auditor == nullptr) return samples;
    const std::size_t size = row_bytes(compute.encoding, compute.hidden);
    AnswerTerms terms{
        compute.layer, 0, compute.hidden, compute.recipe, compute.encoding, output_encoding(config_.arithmetic)};
    for (std::uint32_t i : config_.auditor->choose(compute.pairs.size(), share, kMostAuditedOfRequest)) {
        terms.expert = compute.pairs[i].expert;
        const ByteSpan row = compute.rows.subspan(compute.pairs[i].row * size, size);
        samples.push_back({i, {terms, {row.begin(), row.end()}}, {}});
    }
    return samples;
}

double WorkerLink::share_to_audit() const {
    if (config_.auditor == nullptr) return 0;
    std::scoped_lock lock(mutex_);
    return audit_share(config_.auditor->budget(), audits_);
}

bool WorkerLink::trusted_now(const std::vector<Sample>& samples) const {
    if (config_.auditor == nullptr || !config_.auditor->strict()) return true;
    return std::ranges::all_of(
        samples, [this](const Sample& sample) { return config_.auditor->agrees(sample.question, sample.answer); });
}

void WorkerLink::fill_samples(std::vector<Sample>& samples, ByteSpan rows) {
    for (Sample& sample : samples) {
        const std::size_t size = row_bytes(sample.question.terms.answer, sample.question.terms.hidden);
        const ByteSpan row = rows.subspan(sample.place * size, size);
        sample.answer.assign(row.begin(), row.end());
    }
}

void WorkerLink::audit(std::uint64_t generation, std::uint64_t id, std::vector<Sample> samples, bool urgent) {
    if (samples.empty()) return;
    Unsigned open{std::chrono::steady_clock::now(), 0, urgent, std::move(samples)};
    {
        std::scoped_lock lock(mutex_);
        open.stamp = pairs_used_;
        // A connection that is gone brings no signature.
        if (config_.endpoint.id && generation == generation_) return await_signature(id, std::move(open));
    }
    submit(std::move(open), nullptr);
}

// Of more than can be kept, each is kept with the same chance: a worker chooses when it signs, but not what is audited.
void WorkerLink::await_signature(std::uint64_t id, Unsigned open) {
    ++unsigned_seen_;
    if (unsigned_.size() < kMostUnsigned || open.urgent) {
        unsigned_.insert_or_assign(id, std::move(open));
        return;
    }
    const std::size_t place = std::uniform_int_distribution<std::size_t>(0, unsigned_seen_ - 1)(random_);
    if (place >= unsigned_.size()) return;
    const auto victim = std::next(unsigned_.begin(), static_cast<std::ptrdiff_t>(place));
    if (victim->second.urgent) return;
    unsigned_.erase(victim);
    unsigned_.insert_or_assign(id, std::move(open));
}

void WorkerLink::submit(Unsigned open, std::shared_ptr<const SignedAnswers> proof) {
    for (Sample& sample : open.samples) {
        config_.auditor->submit(
            {std::move(sample.question), std::move(sample.answer), weak_from_this(), open.stamp, proof, open.urgent});
    }
}

void WorkerLink::handle_attestation(const Frame& frame, Aftermath& after) {
    if (!config_.endpoint.id || phase_ != Phase::up) {
        return lose({ErrorKind::invalid, "sent an ATTEST where there are no keys"}, false, after);
    }
    Result<Attestation> attestation = decode_attestation(frame.payload);
    if (!attestation) return lose(attestation.error().within("its ATTEST"), false, after);
    if (node_id(attestation->key) != *config_.endpoint.id) {
        return lose({ErrorKind::mismatch, "signs its answers with another key than its own"}, true, after);
    }
    std::vector<Unsigned> proven;
    for (const AttestedAnswers& answers : attestation->answers) {
        const auto found = unsigned_.find(answers.request);
        if (found == unsigned_.end()) continue;
        Unsigned part{found->second.since, found->second.stamp, found->second.urgent, {}};
        std::erase_if(found->second.samples, [&](Sample& sample) {
            const bool covered = sample.place >= answers.first && sample.place - answers.first < answers.digests.size();
            if (covered) part.samples.push_back(std::move(sample));
            return covered;
        });
        if (found->second.samples.empty()) unsigned_.erase(found);
        proven.push_back(std::move(part));
    }
    if (unsigned_.empty()) unsigned_seen_ = 0;
    if (proven.empty()) return;
    const AttestationContext context{config_.model_id, config_.identity->id(), wire_name(config_.arithmetic)};
    const auto proof = std::make_shared<const SignedAnswers>(SignedAnswers{context, frame.payload});
    for (Unsigned& open : proven)
        submit(std::move(open), proof);
}

void WorkerLink::demand_signatures(SteadyTime now, Aftermath& after) {
    const bool overdue = std::ranges::any_of(
        unsigned_, [&](const auto& open) { return now - open.second.since > config_.timing.signature; });
    if (overdue) lose({ErrorKind::mismatch, "does not sign its answers"}, true, after);
}

void WorkerLink::doubt(SteadyTime now) {
    doubted_ = true;
    set_aside("an answer is not what this machine computes", now);
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
            "the last one that was found right ({} were audited): do not trust what was written with them",
            name_, what, pairs_used_, pairs_used_ - pairs_trusted_, audits_ + 1);
        ++failures_;
        phase_ = Phase::stopped;
        lose({ErrorKind::mismatch, fmt::format("gave a wrong answer: {}", what)}, true, after);
    }
    finish(after);
}

}  // namespace kvasir
