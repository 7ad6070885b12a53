#include "backbone/latency_model.h"

#include <algorithm>
#include <bit>

namespace kvasir {
namespace {

constexpr double kShapeWeight = 0.05;
constexpr double kLevelWeight = 0.3;
constexpr double kMissWeight = 0.5;
// One answer counts as no more than so many times the level: a single hiccup isn't a slow worker, a few are.
constexpr double kLargestStep = 4;
constexpr std::uint64_t kSamplesForDeadline = 4;
constexpr double kDeadlineFactor = 4;
constexpr double kTiny = 1e-9;

std::size_t bucket_of(std::uint32_t pairs) {
    return static_cast<std::size_t>(std::bit_width(std::max(pairs, 1U)) - 1);
}

}  // namespace

void LatencyModel::record(std::uint32_t pairs, double latency, double compute) {
    pairs = std::max(pairs, 1U);
    latency = std::max(latency, kTiny);
    compute = std::clamp(compute, 0.0, latency);
    double usual = measured() ? std::max(shape(pairs).at(pairs), kTiny) : latency;
    double ratio = latency / usual;
    double bounded = std::clamp(ratio, level_ / kLargestStep, level_ * kLargestStep);
    ratios_[samples_ % kRecent] = ratio;
    latencies_[samples_ % kRecent] = latency;
    ++samples_;

    Bucket& bucket = buckets_[bucket_of(pairs)];
    double weight = std::max(kShapeWeight, 1.0 / (bucket.samples + 1));
    double believed = bucket.samples == 0 ? latency : std::min(latency, bounded * usual);
    level_ += kLevelWeight * (bounded - level_);
    ++bucket.samples;
    bucket.pairs += weight * (pairs - bucket.pairs);
    bucket.overhead += weight * (std::max(believed - compute, 0.0) - bucket.overhead);
    bucket.compute += weight * (std::min(compute, believed) - bucket.compute);
}

void LatencyModel::missed(std::uint32_t pairs, double waited) {
    if (!measured()) return;
    double ratio = waited / std::max(shape(pairs).at(pairs), kTiny);
    double bounded = std::clamp(ratio, level_ * kLargestStep / 2, level_ * kLargestStep);
    level_ += kMissWeight * (bounded - level_);
}

const LatencyModel::Bucket* LatencyModel::nearest(std::uint32_t pairs) const {
    std::size_t wanted = bucket_of(pairs);
    for (std::size_t distance = 0; distance < kBuckets; ++distance) {
        if (wanted >= distance && buckets_[wanted - distance].samples > 0) return &buckets_[wanted - distance];
        if (wanted + distance < kBuckets && buckets_[wanted + distance].samples > 0) {
            return &buckets_[wanted + distance];
        }
    }
    return nullptr;
}

LatencyModel::Line LatencyModel::shape(std::uint32_t pairs) const {
    const Bucket* bucket = nearest(pairs);
    if (bucket == nullptr) return {};
    // Overhead grows with the bytes above the size it was measured at; below, it is taken to be fixed.
    double growth = std::max(1.0, pairs / bucket->pairs / 2);
    return {bucket->overhead * growth, bucket->compute / bucket->pairs};
}

LatencyModel::Line LatencyModel::line(std::uint32_t pairs) const {
    Line base = shape(pairs);
    return {base.fixed * level_, base.per_pair * level_};
}

double LatencyModel::deadline(std::uint32_t pairs, double floor, double cap) const {
    if (samples_ < kSamplesForDeadline) return cap;
    double usual = median_of(ratios_);
    return std::min(std::max(kDeadlineFactor * usual * shape(pairs).at(pairs), floor), cap);
}

double LatencyModel::median_of(std::array<double, kRecent> recent) const {
    auto middle = recent.begin() + static_cast<std::ptrdiff_t>((recent_count() - 1) / 2);
    std::nth_element(recent.begin(), middle, recent.begin() + static_cast<std::ptrdiff_t>(recent_count()));
    return *middle;
}

double LatencyModel::median() const {
    return measured() ? median_of(latencies_) : 0;
}

}  // namespace kvasir
