// How much of what workers answer is computed once more, and what that means for a worker that lies.
//
// A pair is audited by lot, with a share that depends on the worker's clean audits alone: s(k) after k of them. A
// worker that lies in a fraction f of its rows survives an audit with probability 1 - f, and gives 1 / s(k) rows on
// average between one audit and the next. So until it is caught it gives
//
//     E(f) = sum over k of (1 - f)^k / s(k)     rows, of which f E(f) are wrong.
//
// Whoever lies only after long service has s at its lowest, s': 1 / (s' f) rows, of which 1 / s' are wrong. That holds
// while the budget of computing is enough for all that is drawn; what is left out beyond it is left out by lot as well.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

namespace kvasir {

struct AuditBudget {
    double compute = 0.02;          // of one core's time, at most
    double first_share = 0.25;      // of a new worker's pairs
    double last_share = 1.0 / 256;  // of a long-proven one's: never zero
};

// No more of one request: its share is never so large that this binds in tokens, and a prompt is not audited all at
// once.
inline constexpr std::size_t kMostAuditedOfRequest = 4;

// s(clean): the first share, halved by every 32 clean audits, down to the last.
double audit_share(const AuditBudget& budget, std::uint64_t clean);

// Which of a request's pairs are to be audited, by lot: each with probability `share`, but no more than `most`, of
// which all have the same chance wherever in the request they are.
std::vector<std::uint32_t> choose_pairs(std::mt19937_64& random, std::size_t pairs, double share, std::size_t most);

// E(f) for a new worker. 0 < f <= 1.
double rows_until_caught(const AuditBudget& budget, double f);

// The same by trying: `workers` liars, whose every row is a lie with probability `f`, in requests of `pairs`.
struct LiarTrial {
    double rows = 0;     // mean until caught
    double wrong = 0;    // of these
    double rows_90 = 0;  // nine of ten are caught by then
};
LiarTrial try_liars(const AuditBudget& budget, double f, std::size_t pairs, std::size_t workers, std::uint64_t seed);

}  // namespace kvasir
