#include "market/demand.h"

#include <algorithm>
#include <cmath>

namespace kvasir::market {
namespace {

double faded(Duration passed, Duration half_life) {
    return std::exp2(-static_cast<double>(passed.count()) / static_cast<double>(half_life.count()));
}

}  // namespace

Demand::Demand(std::shared_ptr<const Offer> offer, const Rules& rules)
    : offer_(std::move(offer)),
      rules_(rules),
      leased_(offer_->cells()),
      serving_(offer_->cells()),
      rows_(offer_->cells()),
      misses_(offer_->cells()),
      popularity_(offer_->cells()),
      open_(offer_->cells()),
      held_(offer_->cells()),
      held_sums_(offer_->cells() + std::size_t{1}),
      loads_(offer_->cells()) {
    reprice(Duration(0));
}

void Demand::replace_offer(std::shared_ptr<const Offer> offer) {
    offer_ = std::move(offer);
    reprice(Duration(0));
}

void Demand::add_leased(const Piece& piece, int change) {
    const Offer::Cells cells = offer_->cells_of(piece).value();
    const std::uint64_t bytes = offer_->layers()[cells.layer].expert_bytes;
    for (CellIndex cell = cells.first; cell < cells.end; ++cell) {
        leased_[cell] = static_cast<std::uint16_t>(leased_[cell] + change);
        reprice_cell(cell, bytes);
    }
}

void Demand::add_serving(const Piece& piece, int change) {
    const Offer::Cells cells = offer_->cells_of(piece).value();
    for (CellIndex cell = cells.first; cell < cells.end; ++cell)
        serving_[cell] = static_cast<std::uint16_t>(serving_[cell] + change);
}

void Demand::report(CellIndex cell, double rows, double misses) {
    // An impulse whose decay integrates to what was counted.
    const double seconds = std::chrono::duration<double>(rules_.half_life).count() / std::log(2.0);
    rows_[cell] += static_cast<float>(rows / seconds);
    misses_[cell] += static_cast<float>(misses / seconds);
}

std::uint32_t Demand::wanted(CellIndex cell) const {
    return wanted_replicas(offer_->target(), rows_[cell] - misses_[cell], misses_[cell]);
}

void Demand::reprice_cell(CellIndex cell, std::uint64_t expert_bytes) {
    const std::uint32_t others = leased_[cell];
    const std::uint32_t want = wanted(cell);
    open_[cell] = price(rules_.base_rate, scarcity(others, want), popularity_[cell]);
    held_[cell] = price(rules_.base_rate, scarcity(others == 0 ? 0 : others - 1, want), popularity_[cell]);
    loads_[cell] = rows_[cell] * static_cast<float>(expert_bytes) / static_cast<float>(others + 1);
}

void Demand::reprice(Duration passed) {
    const auto factor = static_cast<float>(faded(passed, rules_.half_life));
    best_open_ = 0;
    missing_ = 0;
    for (std::size_t l = 0; l < offer_->layers().size(); ++l) {
        const OfferLayer& layer = offer_->layers()[l];
        const CellIndex first = offer_->first_cell(l);
        double sum = 0;
        for (CellIndex cell = first; cell < first + layer.experts; ++cell) {
            rows_[cell] *= factor;
            misses_[cell] *= factor;
            sum += rows_[cell];
        }
        for (CellIndex cell = first; cell < first + layer.experts; ++cell) {
            popularity_[cell] = static_cast<std::uint32_t>(market::popularity(rows_[cell], sum / layer.experts));
            reprice_cell(cell, layer.expert_bytes);
            best_open_ = std::max(best_open_, open_[cell]);
            missing_ += leased_[cell] < wanted(cell) ? 1 : 0;
        }
    }
    for (CellIndex cell = 0; cell < offer_->cells(); ++cell)
        held_sums_[cell + 1] = held_sums_[cell] + held_[cell];
}

Rate Demand::mean_held(const Piece& piece) const {
    const Offer::Cells cells = offer_->cells_of(piece).value();
    return (held_sums_[cells.end] - held_sums_[cells.first]) / piece.count;
}

Rate Demand::mean_of(std::span<const Rate> rates, const Piece& piece) const {
    const Offer::Cells cells = offer_->cells_of(piece).value();
    unsigned __int128 sum = 0;
    for (CellIndex cell = cells.first; cell < cells.end; ++cell)
        sum += rates[cell];
    return static_cast<Rate>(sum / piece.count);
}

LoadRecord Demand::load_record(std::size_t layer, Instant at) const {
    const auto first = static_cast<std::ptrdiff_t>(offer_->first_cell(layer));
    const auto end = static_cast<std::ptrdiff_t>(offer_->first_cell(layer + 1));
    return {offer_->model(),
            offer_->layers()[layer].layer,
            at,
            {rows_.begin() + first, rows_.begin() + end},
            {misses_.begin() + first, misses_.begin() + end}};
}

void Demand::restore(const LoadRecord& record, Instant now) {
    const std::size_t layer = offer_->find(record.layer);
    if (layer == offer_->layers().size()) return;
    const std::uint32_t experts = offer_->layers()[layer].experts;
    if (record.rows.size() != experts || record.misses.size() != experts) return;
    const auto factor = static_cast<float>(faded(std::max(Duration(0), now - record.at), rules_.half_life));
    for (std::uint32_t e = 0; e < experts; ++e) {
        rows_[offer_->first_cell(layer) + e] = record.rows[e] * factor;
        misses_[offer_->first_cell(layer) + e] = record.misses[e] * factor;
    }
}

}  // namespace kvasir::market
