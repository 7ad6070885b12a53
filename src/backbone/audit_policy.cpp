#include "backbone/audit_policy.h"

#include <algorithm>
#include <cmath>

namespace kvasir {
namespace {

constexpr double kHalving = 32;  // clean audits

struct Career {
    double rows = 0;
    double wrong = 0;
};

Career until_caught(const AuditBudget& budget, double f, std::size_t pairs, std::mt19937_64& random) {
    std::bernoulli_distribution lies(f);
    Career career;
    for (std::uint64_t clean = 0;;) {
        std::vector<bool> wrong(pairs);
        for (std::size_t i = 0; i < pairs; ++i)
            wrong[i] = lies(random);
        career.rows += static_cast<double>(pairs);
        career.wrong += static_cast<double>(std::ranges::count(wrong, true));
        bool caught = false;
        for (std::uint32_t pair : choose_pairs(random, pairs, audit_share(budget, clean), kMostAuditedOfRequest)) {
            caught = caught || wrong[pair];
            ++clean;
        }
        if (caught) return career;
    }
}

}  // namespace

double audit_share(const AuditBudget& budget, std::uint64_t clean) {
    const double share = budget.first_share * std::exp2(-static_cast<double>(clean) / kHalving);
    return std::max(share, budget.last_share);
}

std::vector<std::uint32_t> choose_pairs(std::mt19937_64& random, std::size_t pairs, double share, std::size_t most) {
    std::vector<std::uint32_t> chosen;
    std::size_t drawn = 0;
    std::uniform_real_distribution<double> lot(0, 1);
    for (std::uint32_t i = 0; i < pairs; ++i) {
        if (lot(random) >= share) continue;
        ++drawn;
        if (chosen.size() < most) {
            chosen.push_back(i);
            continue;
        }
        // Reservoir sampling: the newcomer takes a place with probability most / drawn.
        const std::size_t place = std::uniform_int_distribution<std::size_t>(0, drawn - 1)(random);
        if (place < most) chosen[place] = i;
    }
    return chosen;
}

double rows_until_caught(const AuditBudget& budget, double f) {
    double rows = 0;
    double survives = 1;
    std::uint64_t clean = 0;
    // Once the share is at its last, the rest is a geometric series.
    for (; audit_share(budget, clean) > budget.last_share; ++clean) {
        rows += survives / audit_share(budget, clean);
        survives *= 1 - f;
    }
    return rows + survives / (budget.last_share * f);
}

LiarTrial try_liars(const AuditBudget& budget, double f, std::size_t pairs, std::size_t workers, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<double> rows;
    LiarTrial trial;
    for (std::size_t i = 0; i < workers; ++i) {
        const Career career = until_caught(budget, f, pairs, random);
        rows.push_back(career.rows);
        trial.rows += career.rows / static_cast<double>(workers);
        trial.wrong += career.wrong / static_cast<double>(workers);
    }
    const auto ninth = rows.begin() + static_cast<std::ptrdiff_t>(workers * 9 / 10);
    std::ranges::nth_element(rows, ninth);
    trial.rows_90 = *ninth;
    return trial;
}

}  // namespace kvasir
