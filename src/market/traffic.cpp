#include "market/traffic.h"

#include <cmath>
#include <numbers>
#include <numeric>

namespace kvasir::market {

Traffic::Traffic(const Offer& offer, std::uint32_t used, double tokens_per_s, Random& random)
    : shares_(offer.cells()), rows_per_s_(tokens_per_s * used) {
    for (std::size_t l = 0; l < offer.layers().size(); ++l) {
        const std::uint32_t experts = offer.layers()[l].experts;
        std::vector<std::uint32_t> order(experts);
        std::iota(order.begin(), order.end(), 0U);
        for (std::uint32_t i = experts; i > 1; --i)
            std::swap(order[i - 1], order[random.below(i)]);
        double sum = 0;
        for (std::uint32_t rank = 0; rank < experts; ++rank)
            sum += std::pow(rank + 1.0, -0.7);
        for (std::uint32_t rank = 0; rank < experts; ++rank)
            shares_[offer.first_cell(l) + order[rank]] = std::pow(rank + 1.0, -0.7) / sum;
    }
}

double Traffic::rows(CellIndex cell, std::uint64_t minute, double seconds) const {
    const double hour = static_cast<double>(minute % (24 * 60)) / 60;
    const double level = 1 + 0.5 * std::cos((hour - 16) / 12 * std::numbers::pi);
    return shares_[cell] * rows_per_s_ * level * seconds;
}

}  // namespace kvasir::market
