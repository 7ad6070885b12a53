// Audits: a random share of what workers answered is computed once more here, off the critical path, and compared bit
// by bit. A worker cannot know which pairs those will be. One wrong row convicts.
//
// With a share p audited, a worker that lies in a fraction f of its rows has given n rows before it is caught with
// probability (1 − p·f)^n; so it gives 1 / (p·f) rows on average, of which 1 / p are wrong.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "expert/row_encoding.h"
#include "gguf/recipe.h"

namespace kvasir {

// One row through one expert.
struct AuditQuestion {
    std::uint32_t layer = 0;
    std::uint32_t expert = 0;  // global id
    std::uint32_t hidden = 0;
    Recipe recipe;
    RowEncoding encoding = RowEncoding::f32;
    ByteVector row;
};

// Whoever knows the right answer: the local replica, for as long as the auditor lives.
class AuditReference {
  public:
    virtual ~AuditReference() = default;
    // out: [hidden]. Called by the auditor's thread alone.
    virtual Status compute(const AuditQuestion& question, std::span<float> out) = 0;
    // Whether the weights it computes with are those that were published: asked before anybody is convicted.
    virtual Status check_weights(std::uint32_t layer, std::uint32_t expert) = 0;
};

// Whose answer it was. Called by the auditor's thread, with no lock held.
class AuditSubject {
  public:
    virtual ~AuditSubject() = default;
    // `stamp` is what submit() was given.
    virtual void acquitted(std::uint64_t stamp) = 0;
    virtual void convicted(const std::string& what) = 0;
};

struct AuditBudget {
    double compute = 0.02;          // of one core's time, at most
    double first_share = 0.25;      // of a new worker's pairs
    double last_share = 1.0 / 256;  // of a long-proven one's: never zero
};

// The share of pairs to audit of a worker that passed `clean` audits since it came: halved by every 32, down to the
// last.
double audit_share(const AuditBudget& budget, std::uint64_t clean);

// Thread-safe. Its thread runs at the lowest priority.
class Auditor {
  public:
    Auditor(std::shared_ptr<AuditReference> reference, const AuditBudget& budget);
    // Ends the thread after the audit it is at.
    ~Auditor();
    Auditor(const Auditor&) = delete;
    Auditor& operator=(const Auditor&) = delete;

    const AuditBudget& budget() const { return budget_; }
    // Which of a request's pairs are to be audited, by lot: each with probability `share`, but no more than `most`, of
    // which all have the same chance wherever in the request they are.
    std::vector<std::uint32_t> choose(std::size_t pairs, double share, std::size_t most);
    // answer: [hidden]. Dropped where too many wait: the budget is spent.
    void submit(AuditQuestion question, std::vector<float> answer, std::weak_ptr<AuditSubject> subject,
                std::uint64_t stamp);

  private:
    struct Case {
        AuditQuestion question;
        std::vector<float> answer;
        std::weak_ptr<AuditSubject> subject;
        std::uint64_t stamp = 0;
    };
    void run();
    void judge(const Case& open);

    const std::shared_ptr<AuditReference> reference_;
    const AuditBudget budget_;
    std::mutex mutex_;  // guards the rest
    std::condition_variable changed_;
    std::deque<Case> cases_;
    std::mt19937_64 random_;
    bool stopped_ = false;
    std::thread thread_;
};

}  // namespace kvasir
