// Audits: a random share of what workers answered is computed once more here, off the critical path, and compared bit
// by bit. A worker cannot know which pairs those will be. One wrong row convicts. (audit_policy.h says how soon.)
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "backbone/audit_policy.h"
#include "backbone/evidence.h"
#include "base/bytes.h"
#include "base/result.h"
#include "wire/attestation.h"

namespace kvasir {

// One row through one expert.
struct AuditQuestion {
    AnswerTerms terms;
    ByteVector row;
};

// Whoever knows the right answer: the local replica, for as long as the auditor lives.
class AuditReference {
  public:
    virtual ~AuditReference() = default;
    // out: row_bytes(terms.answer, terms.hidden). One call at a time.
    virtual Status compute(const AuditQuestion& question, std::span<std::byte> out) = 0;
    // Whether the weights it computes with are those that were published: asked before anybody is convicted.
    virtual Status check_weights(std::uint32_t layer, std::uint32_t expert) = 0;
};

// How many of two rows' values differ in any bit, or are of a block whose exponents differ. Both of row_bytes(encoding,
// …), which is for results: f32 or i16x256.
std::size_t differing_values(RowEncoding encoding, ByteSpan left, ByteSpan right);

// Whose answer it was. Called by the auditor's thread, with no lock held.
class AuditSubject {
  public:
    virtual ~AuditSubject() = default;
    // `stamp` is the case's.
    virtual void acquitted(std::uint64_t stamp) = 0;
    virtual void convicted(const std::string& what) = 0;
};

// The frame with which a worker signed some of its answers.
struct SignedAnswers {
    AttestationContext context;
    ByteVector payload;  // that decode_attestation() took
};

struct AuditCase {
    AuditQuestion question;
    ByteVector answer;  // as it came
    std::weak_ptr<AuditSubject> subject;
    std::uint64_t stamp = 0;
    std::shared_ptr<const SignedAnswers> proof;  // null: the answer was not signed (yet)
    bool urgent = false;                         // first in the queue, and never dropped
};

struct AuditorOptions {
    AuditBudget budget;
    // Of a conviction, before its subject hears of it: keeps the evidence, and tells where for the log.
    std::function<Result<std::string>(const Evidence&)> keep;  // null: nowhere
    // For agrees(); null where it is not called.
    std::shared_ptr<AuditReference> strict_reference;
};

// Thread-safe. Its thread runs at the lowest priority.
class Auditor {
  public:
    Auditor(std::shared_ptr<AuditReference> reference, AuditorOptions options);
    // Ends the thread after the audit it is at.
    ~Auditor();
    Auditor(const Auditor&) = delete;
    Auditor& operator=(const Auditor&) = delete;

    const AuditBudget& budget() const { return options_.budget; }
    bool strict() const { return options_.strict_reference != nullptr; }

    // choose_pairs() of audit_policy.h, unforeseeably.
    std::vector<std::uint32_t> choose(std::size_t pairs, double share, std::size_t most);
    // Where too many wait, the budget is spent: then one of them is dropped, by lot.
    void submit(AuditCase open);
    // Whether this machine's answer is the same, now, on the caller's thread. False where it has none.
    bool agrees(const AuditQuestion& question, ByteSpan answer);

  private:
    void run();
    void enter(AuditCase open);  // with mutex_ held
    void judge(const AuditCase& open);
    std::string keep_evidence(const AuditCase& open, ByteVector right) const;

    const std::shared_ptr<AuditReference> reference_;
    const AuditorOptions options_;
    std::mutex strict_mutex_;  // guards the strict reference

    std::mutex mutex_;  // guards the rest
    std::condition_variable changed_;
    std::deque<AuditCase> cases_;
    std::size_t offered_ = 0;  // of those that wait and those dropped, since there was last room
    std::mt19937_64 random_;
    bool stopped_ = false;
    std::thread thread_;
};

}  // namespace kvasir
