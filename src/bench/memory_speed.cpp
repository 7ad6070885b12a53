#include <algorithm>
#include <chrono>
#include <cstdint>
#include <numeric>
#include <thread>
#include <vector>

#include "bench/bench.h"

namespace kvasir {
namespace {

constexpr std::size_t kWords = (std::size_t{512} << 20) / sizeof(std::uint64_t);  // well over any cache
constexpr int kPasses = 5;

}  // namespace

double memory_read_speed(int threads) {
    std::vector<std::uint64_t> memory(kWords, 1);
    std::vector<std::uint64_t> sums(static_cast<std::size_t>(threads));
    double best = 0;
    for (int pass = 0; pass < kPasses; ++pass) {
        auto start = std::chrono::steady_clock::now();
        std::vector<std::thread> team;
        std::size_t share = kWords / static_cast<std::size_t>(threads);
        for (std::size_t i = 0; i < sums.size(); ++i) {
            team.emplace_back([&, i] {
                auto begin = memory.begin() + static_cast<std::ptrdiff_t>(i * share);
                sums[i] += std::accumulate(begin, begin + static_cast<std::ptrdiff_t>(share), std::uint64_t{0});
            });
        }
        for (std::thread& thread : team)
            thread.join();
        double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        best = std::max(best, static_cast<double>(kWords * sizeof(std::uint64_t)) / seconds);
    }
    // The sums are used, so that the reading is not optimised away.
    return std::accumulate(sums.begin(), sums.end(), std::uint64_t{0}) == 0 ? 0 : best;
}

}  // namespace kvasir
