#include "verify/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace kvasir {
namespace {

bool same_bits(std::span<const float> a, std::span<const float> b) {
    return std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

constexpr double kInfinite = std::numeric_limits<double>::infinity();

// Infinite where one side is not a number: no finite figure would be true.
double max_difference(std::span<const float> a, std::span<const float> b) {
    double largest = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
        const double difference = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
        if (std::isnan(difference)) return kInfinite;
        largest = std::max(largest, difference);
    }
    return largest;
}

// Zero where it is not defined.
double cosine(std::span<const float> a, std::span<const float> b) {
    double dot = 0;
    double aa = 0;
    double bb = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
        dot += static_cast<double>(a[i]) * b[i];
        aa += static_cast<double>(a[i]) * a[i];
        bb += static_cast<double>(b[i]) * b[i];
    }
    const double norm = std::sqrt(aa) * std::sqrt(bb);
    const double quotient = dot / norm;
    if (std::isnan(quotient)) return 0;
    return std::clamp(quotient, -1.0, 1.0);
}

std::size_t top1(std::span<const float> logits) {
    return static_cast<std::size_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

double log_sum_exp(std::span<const float> logits) {
    const double top = *std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (const float logit : logits)
        sum += std::exp(logit - top);
    return top + std::log(sum);
}

double kl_divergence(std::span<const float> p, std::span<const float> q) {
    const double p_norm = log_sum_exp(p);
    const double q_norm = log_sum_exp(q);
    double sum = 0;
    for (std::size_t i = 0; i < p.size(); ++i) {
        const double log_p = p[i] - p_norm;
        sum += std::exp(log_p) * (log_p - (q[i] - q_norm));
    }
    if (std::isnan(sum)) return kInfinite;
    return std::max(sum, 0.0);
}

void compare_position(std::span<const float> reference, std::span<const float> other, std::uint64_t position,
                      Comparison& into) {
    ++into.positions;
    const bool finite = std::ranges::all_of(reference, [](float logit) { return std::isfinite(logit); });
    if (!finite) ++into.positions_not_finite;
    if (same_bits(reference, other)) {
        ++into.top1_equal;
        return;
    }
    ++into.positions_different;
    const double difference = max_difference(reference, other);
    const double divergence = kl_divergence(reference, other);
    into.max_abs = std::max(into.max_abs, difference);
    into.kl_max = std::max(into.kl_max, divergence);
    into.kl_sum += divergence;
    into.min_cosine = std::min(into.min_cosine, cosine(reference, other));
    if (top1(reference) == top1(other)) ++into.top1_equal;
    if (!into.first_difference) {
        into.first_difference = fmt::format("logits of position {} differ, by up to {:.3g}", position, difference);
    }
}

void compare_layer(std::uint32_t layer, const LayerRows& reference, const LayerRows& other,
                   std::uint64_t first_position, Comparison& into) {
    const std::size_t hidden = reference.hidden;
    into.rows += reference.rows();
    if (other.hidden != hidden || other.values.size() != reference.values.size()) {
        into.rows_different += reference.rows();
        if (!into.first_difference) {
            into.first_difference =
                fmt::format("layer {} has {} expert rows where the reference has {} (batch at position {})", layer,
                            other.rows(), reference.rows(), first_position);
        }
        return;
    }
    for (std::size_t row = 0; row < reference.rows(); ++row) {
        const std::span<const float> a = std::span(reference.values).subspan(row * hidden, hidden);
        const std::span<const float> b = std::span(other.values).subspan(row * hidden, hidden);
        if (same_bits(a, b)) continue;
        ++into.rows_different;
        const double difference = max_difference(a, b);
        into.row_max_abs = std::max(into.row_max_abs, difference);
        if (!into.first_difference) {
            into.first_difference =
                fmt::format("expert output row {} of layer {} (batch at position {}) differs, by up to {:.3g}", row,
                            layer, first_position, difference);
        }
    }
}

}  // namespace

double negative_log_likelihood(std::span<const float> logits, std::int32_t token) {
    return log_sum_exp(logits) - static_cast<double>(logits[static_cast<std::size_t>(token)]);
}

void compare_logits(std::span<const float> reference, std::span<const float> other, std::size_t vocabulary,
                    std::uint64_t first_position, Comparison& into) {
    for (std::size_t at = 0; at + vocabulary <= reference.size(); at += vocabulary) {
        compare_position(reference.subspan(at, vocabulary), other.subspan(at, vocabulary),
                         first_position + at / vocabulary, into);
    }
}

void compare_experts(const ExpertRecord& reference, const ExpertRecord& other, std::uint64_t first_position,
                     Comparison& into) {
    for (const auto& [layer, rows] : reference.layers()) {
        if (rows.values.empty()) continue;
        const auto found = other.layers().find(layer);
        if (found == other.layers().end() || found->second.values.empty()) {
            into.layers_unseen.insert(layer);
        } else {
            compare_layer(layer, rows, found->second, first_position, into);
        }
    }
}

}  // namespace kvasir
