// Two runs held against each other, bit by bit: logits of every position and every expert output row.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>

#include "verify/expert_record.h"

namespace kvasir {

struct Comparison {
    std::uint64_t positions = 0;
    std::uint64_t positions_different = 0;   // in any bit of any logit
    std::uint64_t positions_not_finite = 0;  // the reference's logits hold an infinity or a NaN
    std::uint64_t top1_equal = 0;
    double max_abs = 0;  // of a logit's difference
    double kl_max = 0;   // KL(reference || other) of a position, nats
    double kl_sum = 0;
    double min_cosine = 1;

    std::uint64_t rows = 0;            // expert output rows compared
    std::uint64_t rows_different = 0;  // in any bit
    double row_max_abs = 0;
    // Layers whose expert group the other run's backend did not recognise and left to llama.cpp: nothing to compare.
    std::set<std::uint32_t> layers_unseen;

    // The first difference in words, for the report.
    std::optional<std::string> first_difference;

    bool identical() const { return positions_different == 0 && rows_different == 0; }
    double kl_mean() const { return positions == 0 ? 0 : kl_sum / static_cast<double>(positions); }
};

// −log p(token), nats.
double negative_log_likelihood(std::span<const float> logits, std::int32_t token);

// Adds the logits of some positions, [positions][vocabulary]; `first_position` is the number of the first, for words.
// Both spans must be of one size and not empty.
void compare_logits(std::span<const float> reference, std::span<const float> other, std::size_t vocabulary,
                    std::uint64_t first_position, Comparison& into);

// Adds the expert outputs of one decode call that began at `first_position`.
void compare_experts(const ExpertRecord& reference, const ExpertRecord& other, std::uint64_t first_position,
                     Comparison& into);

}  // namespace kvasir
