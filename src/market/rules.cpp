#include "market/rules.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace kvasir::market {
namespace {

constexpr Thousandths kOne = 1000;
constexpr Thousandths kMissing = 16 * kOne;
// With scarcity <= 16 * 2 * 64 and popularity <= 4 the rates of a million experts then add up below 2^64.
constexpr Rate kLargestBase = 1'000'000'000;
constexpr std::uint32_t kLargestTarget = 64;
constexpr std::uint64_t kGigabyte = 1'000'000'000;

struct Named {
    const char* name;
    Duration value;
};

}  // namespace

Status check(const Rules& rules) {
    if (rules.base_rate == 0 || rules.base_rate > kLargestBase) {
        return fail(ErrorKind::usage, "the market's base rate is {}: 1 to {} micro-units per GB", rules.base_rate,
                    kLargestBase);
    }
    if (rules.target == 0 || rules.target > kLargestTarget) {
        return fail(ErrorKind::usage, "the market's target is {} replicas: 1 to {}", rules.target, kLargestTarget);
    }
    for (const Named& each :
         {Named{"heartbeat", rules.heartbeat}, Named{"lease", rules.lease}, Named{"grace", rules.grace},
          Named{"term", rules.term}, Named{"dwell", rules.dwell}, Named{"prove_within", rules.prove_within},
          Named{"proof", rules.proof}, Named{"half_life", rules.half_life},
          Named{"save_popularity", rules.save_popularity}, Named{"first_bar", rules.first_bar},
          Named{"longest_bar", rules.longest_bar}, Named{"forgive_after", rules.forgive_after},
          Named{"receipt_window", rules.receipt_window}}) {
        if (each.value <= Duration(0)) return fail(ErrorKind::usage, "the market's {} must be above 0", each.name);
    }
    if (rules.lease < 3 * rules.heartbeat) {
        return fail(ErrorKind::usage,
                    "the market's lease must outlast three heartbeats, or a stall of the hub ends it");
    }
    if (rules.slack_percent >= 100 || rules.gain_percent > 1000) {
        return fail(ErrorKind::usage, "the market's slack is below 100 percent, its gain at most 1000");
    }
    if (rules.max_pieces == 0) return fail(ErrorKind::usage, "the market's max_pieces must be above 0");
    return {};
}

std::uint32_t wanted_replicas(std::uint32_t target, double rows_per_s, double misses_per_s) {
    if (misses_per_s <= 0) return target;
    double share = std::min(1.0, misses_per_s / (misses_per_s + std::max(rows_per_s, 0.0)));
    return target + static_cast<std::uint32_t>(std::floor(target * share));
}

Thousandths scarcity(std::uint32_t others, std::uint32_t wanted) {
    if (others < wanted) return kMissing * (wanted - others);
    return kOne * wanted / (std::uint64_t{others} + 1);
}

Thousandths popularity(double rows_per_s, double mean_rows_per_s) {
    if (!(mean_rows_per_s > 0)) return kOne;
    double share = std::max(rows_per_s, 0.0) / mean_rows_per_s * kOne;
    return static_cast<Thousandths>(
        std::lround(std::clamp(share, static_cast<double>(kLeastPopular), static_cast<double>(kMostPopular))));
}

Rate price(Rate base, Thousandths scarcity, Thousandths popularity) {
    return base * scarcity / kOne * popularity / kOne;
}

std::optional<Micros> reward(std::uint64_t rows, std::uint64_t expert_bytes, Rate rate) {
    // Two factors at a time: rows * bytes fits 128 bits, and the product with a rate must not leave them.
    unsigned __int128 read = static_cast<unsigned __int128>(rows) * expert_bytes;
    if (rate != 0 && read > (~static_cast<unsigned __int128>(0)) / rate) return std::nullopt;
    unsigned __int128 micros = read * rate / kGigabyte;
    if (micros > static_cast<unsigned __int128>(std::numeric_limits<Micros>::max())) return std::nullopt;
    return static_cast<Micros>(micros);
}

Duration bar_after(const Rules& rules, std::uint32_t failures) {
    Duration bar = rules.first_bar;
    for (std::uint32_t i = 1; i < failures && bar < rules.longest_bar; ++i)
        bar *= 2;
    return std::min(bar, rules.longest_bar);
}

std::uint32_t forgiven(const Rules& rules, std::uint32_t failures, Duration since) {
    auto times = std::max<Duration::rep>(0, since / rules.forgive_after);
    return failures - static_cast<std::uint32_t>(std::min<Duration::rep>(failures, times));
}

}  // namespace kvasir::market
