// The demand for one model's experts, cell by cell: replicas leased and serving, measured popularity, and the rates
// that follow. In memory only; leases and loads are remembered elsewhere and put in again.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "market/offer.h"
#include "market/records.h"
#include "market/rules.h"

namespace kvasir::market {

// Not thread-safe.
class Demand {
  public:
    Demand(std::shared_ptr<const Offer> offer, const Rules& rules);

    const Offer& offer() const { return *offer_; }
    const std::shared_ptr<const Offer>& shared_offer() const { return offer_; }
    // The same layers under another target.
    void replace_offer(std::shared_ptr<const Offer> offer);

    // A piece of the offer gained (+1) or lost (-1) a lease; likewise a serving replica.
    void add_leased(const Piece& piece, int change);
    void add_serving(const Piece& piece, int change);

    // `rows` pairs of a cell were asked for, `misses` of them found no replica in time. Counts until reprice().
    void report(CellIndex cell, double rows, double misses);
    // Lets popularity fade by `passed` and computes all rates anew.
    void reprice(Duration passed);

    // What a node that has not got the cell would be paid, and one that has (as if it came anew).
    std::span<const Rate> open_rates() const { return open_; }
    std::span<const Rate> held_rates() const { return held_; }
    std::span<const float> loads() const { return loads_; }  // bytes/s for one replica more
    std::span<const std::uint16_t> leased() const { return leased_; }
    std::span<const std::uint16_t> serving() const { return serving_; }
    std::uint32_t wanted(CellIndex cell) const;
    double rows(CellIndex cell) const { return rows_[cell]; }
    double misses(CellIndex cell) const { return misses_[cell]; }
    Thousandths popularity(CellIndex cell) const { return popularity_[cell]; }

    // As of the last reprice(): the highest open rate, the cells below what is wanted, and the mean held rate of a
    // piece (in constant time).
    Rate best_open() const { return best_open_; }
    std::uint32_t cells_missing() const { return missing_; }
    Rate mean_held(const Piece& piece) const;
    // The mean over the cells of a piece right now.
    Rate mean_of(std::span<const Rate> rates, const Piece& piece) const;

    LoadRecord load_record(std::size_t layer, Instant at) const;
    // Takes up what was remembered, faded since then; one that does not fit the offer is ignored.
    void restore(const LoadRecord& record, Instant now);

  private:
    void reprice_cell(CellIndex cell, std::uint64_t expert_bytes);

    std::shared_ptr<const Offer> offer_;
    Rules rules_;
    std::vector<std::uint16_t> leased_;
    std::vector<std::uint16_t> serving_;
    std::vector<float> rows_;    // a second
    std::vector<float> misses_;  // a second
    std::vector<std::uint32_t> popularity_;
    std::vector<Rate> open_;
    std::vector<Rate> held_;
    std::vector<Rate> held_sums_;  // [i]: sum of held_ before i, at the last reprice()
    std::vector<float> loads_;
    Rate best_open_ = 0;
    std::uint32_t missing_ = 0;
};

}  // namespace kvasir::market
