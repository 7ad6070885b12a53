// What a worker (or the local replica) takes for n pairs, learnt from what it took lately: an expectation to choose
// by and a deadline to hedge by.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace kvasir {

// A slow-moving shape (what n pairs cost, by powers of two of n) times a fast-moving level (how much slower than that
// it is right now), so that an answer of any size tells about all sizes. Times are in seconds. Not thread-safe.
class LatencyModel {
  public:
    // The cost of k pairs near the size asked about: fixed + k * per_pair.
    struct Line {
        double fixed = 0;
        double per_pair = 0;
        double at(double pairs) const { return fixed + per_pair * pairs; }
    };

    // An answer of `pairs` rows took `latency`, of which `compute` was computing.
    void record(std::uint32_t pairs, double latency, double compute);
    // No answer within `waited`: it is slower than that, by how much is unknown.
    void missed(std::uint32_t pairs, double waited);

    bool measured() const { return samples_ > 0; }
    // Zero while nothing is measured.
    Line line(std::uint32_t pairs) const;
    double estimate(std::uint32_t pairs) const { return line(pairs).at(pairs); }
    // When `pairs` rows are overdue: four times what they usually take (the median: where a third of the answers stall,
    // stalling is not what is usual), within [floor, cap]; `cap` until there are enough answers to tell.
    double deadline(std::uint32_t pairs, double floor, double cap) const;
    // The median of recent latencies, whatever their size; 0 while nothing is measured.
    double median() const;

  private:
    struct Bucket {
        std::uint32_t samples = 0;
        double pairs = 0;
        double overhead = 0;
        double compute = 0;
    };
    static constexpr std::size_t kBuckets = 32;
    static constexpr std::size_t kRecent = 64;

    double median_of(std::array<double, kRecent> recent) const;
    const Bucket* nearest(std::uint32_t pairs) const;
    Line shape(std::uint32_t pairs) const;
    std::size_t recent_count() const { return samples_ < kRecent ? static_cast<std::size_t>(samples_) : kRecent; }

    std::array<Bucket, kBuckets> buckets_;
    std::array<double, kRecent> ratios_{};  // latency over shape
    std::array<double, kRecent> latencies_{};
    std::uint64_t samples_ = 0;
    double level_ = 1;
};

}  // namespace kvasir
