// Random numbers for the simulation: SplitMix64, the same on every machine for a seed.
#pragma once

#include <cmath>
#include <cstdint>

namespace kvasir::market {

class Random {
  public:
    explicit Random(std::uint64_t seed) : state_(seed) {}

    std::uint64_t next() {
        std::uint64_t value = state_ += 0x9e3779b97f4a7c15ULL;
        value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
        value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
        return value ^ (value >> 31);
    }
    std::uint64_t below(std::uint64_t bound) { return next() % bound; }
    double unit() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }  // [0, 1)
    double between(double low, double high) { return low + (high - low) * unit(); }
    double exponential(double mean) { return -mean * std::log1p(-unit()); }
    bool chance(double probability) { return unit() < probability; }

  private:
    std::uint64_t state_;
};

}  // namespace kvasir::market
