// What the backbones of a simulation ask for: rows per expert, some experts far more popular than others.
#pragma once

#include <vector>

#include "market/offer.h"
#include "market/random.h"

namespace kvasir::market {

class Traffic {
  public:
    // In every layer the experts' shares fall as 1 / rank^0.7, ranks drawn anew.
    Traffic(const Offer& offer, std::uint32_t used, double tokens_per_s, Random& random);

    // Rows asked of a cell within `seconds` at this minute of the day: a third as many at four in the morning as at
    // four in the afternoon.
    double rows(CellIndex cell, std::uint64_t minute, double seconds) const;
    double share(CellIndex cell) const { return shares_[cell]; }

  private:
    std::vector<double> shares_;
    double rows_per_s_ = 0;  // of a layer
};

}  // namespace kvasir::market
