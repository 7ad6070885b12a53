// The market's rules as numbers and pure functions; docs/market.md tells them in words. All money is in whole
// micro-units, all rates in whole micro-units per gigabyte (10^9 bytes) of weights read.
#pragma once

#include <cstdint>
#include <optional>

#include "base/result.h"
#include "market/clock.h"

namespace kvasir::market {

using Micros = std::int64_t;        // money
using Rate = std::uint64_t;         // micro-units per 10^9 bytes of weights read
using Thousandths = std::uint64_t;  // a factor, 1000 = 1

struct Rules {
    Rate base_rate = 1'000'000;
    std::uint32_t target = 3;  // replicas of every expert, where a model says nothing else

    Duration heartbeat = std::chrono::seconds(60);
    Duration lease = std::chrono::minutes(3);          // without a heartbeat
    Duration grace = std::chrono::minutes(10);         // after the hub was away
    Duration term = std::chrono::hours(6);             // then a lease's rates are set anew
    Duration dwell = std::chrono::hours(1);            // between two moves of a node
    Duration prove_within = std::chrono::minutes(30);  // of the lease, or of the last proof's end
    Duration proof = std::chrono::hours(6);            // a proof or a paid receipt stands for so long
    std::uint32_t gain_percent = 50;                   // less is no reason to move
    std::uint32_t slack_percent = 20;                  // a rate may have fallen by so much since it was seen

    Duration half_life = std::chrono::hours(6);           // of measured popularity
    Duration save_popularity = std::chrono::minutes(10);  // what a crash may lose of it

    Duration first_bar = std::chrono::minutes(5);  // after a failed probe; doubles with every further one
    Duration longest_bar = std::chrono::hours(24);
    Duration forgive_after = std::chrono::hours(24);  // one failure less for every such time without one

    Duration receipt_window = std::chrono::hours(7 * 24);  // for work done under a lease that has ended
    std::uint32_t max_pieces = 4096;                       // of one lease
};

// ErrorKind::usage names the first value that makes no sense or could overflow a rate.
Status check(const Rules& rules);

// How many replicas are wanted where a share of the rows found none in time: up to twice the target.
std::uint32_t wanted_replicas(std::uint32_t target, double rows_per_s, double misses_per_s);

// What one replica more is worth where `others` are there already. A missing one is worth at least 16, one beyond
// the target always less than 1: since popularity spans a factor of 16 and no more, an expert below its target pays
// better than every expert that has it, however popular that is.
Thousandths scarcity(std::uint32_t others, std::uint32_t wanted);

inline constexpr Thousandths kLeastPopular = 250;
inline constexpr Thousandths kMostPopular = 4000;
// An expert's share of its layer's rows over the mean, within [1/4, 4]; 1 where nothing is measured.
Thousandths popularity(double rows_per_s, double mean_rows_per_s);

Rate price(Rate base, Thousandths scarcity, Thousandths popularity);

// Pay for `rows` expert-rows at `expert_bytes` of weights each, rounded down; none where it does not fit.
std::optional<Micros> reward(std::uint64_t rows, std::uint64_t expert_bytes, Rate rate);

// How long a node stays out after its `failures`-th failed probe (from 1).
Duration bar_after(const Rules& rules, std::uint32_t failures);
// What remains of `failures` when the last one was `since` ago.
std::uint32_t forgiven(const Rules& rules, std::uint32_t failures, Duration since);

}  // namespace kvasir::market
