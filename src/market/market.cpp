#include "market/market.h"

#include <algorithm>

namespace kvasir::market {
namespace {

// So many nodes are sent to look at the view per tick even where nothing is missing.
constexpr std::uint32_t kReviewsPerTick = 16;
constexpr Duration kForgetEvery = std::chrono::hours(1);

}  // namespace

const char* name(LineOutcome outcome) {
    switch (outcome) {
        case LineOutcome::paid:
            return "paid";
        case LineOutcome::self_dealing:
            return "worker and backbone have one owner";
        case LineOutcome::unknown_lease:
            return "no such lease, or it is too long ago";
        case LineOutcome::not_leased:
            return "these experts are not within one leased piece";
        case LineOutcome::convicted:
            return "this lease ended by a failed probe";
        case LineOutcome::too_large:
            return "more than can be paid at once";
    }
    return "unknown";
}

bool DemandRow::same(const DemandRow& other) const {
    return serving == other.serving && leased == other.leased && wanted == other.wanted && rate == other.rate &&
           popularity == other.popularity && rows_per_s == other.rows_per_s && misses_per_s == other.misses_per_s;
}

Market::Market(Store& store, const Registry& registry, const Clock& clock, Rules rules)
    : store_(store), registry_(registry), clock_(clock), rules_(rules) {
    ticked_ = saved_ = forgot_ = now();
}

Result<std::unique_ptr<Market>> Market::open(Store& store, const Registry& registry, const Clock& clock,
                                             const Remembered& remembered, Rules rules) {
    if (Status ok = check(rules); !ok) return fail(ok.error());
    std::unique_ptr<Market> market(new Market(store, registry, clock, rules));
    if (Status ok = market->take_up(remembered); !ok) return fail(ok.error());
    return market;
}

Status Market::take_up(const Remembered& remembered) {
    const Instant start = now();
    for (const Offer& offer : remembered.offers)
        demands_.push_back(std::make_unique<Demand>(std::make_shared<const Offer>(offer), rules_));
    for (const LoadRecord& load : remembered.loads) {
        if (Demand* demand = find(load.model); demand != nullptr) demand->restore(load, start);
    }
    for (const WorkerRecord& known : remembered.workers)
        workers_.emplace(known.id, known);
    // The end of a lease may be unwritten: of several, the last epoch is the node's.
    std::unordered_map<NodeId, const LeaseRecord*, DigestHash> last;
    for (const LeaseRecord& lease : remembered.leases) {
        const LeaseRecord*& known = last[lease.node];
        if (known == nullptr || known->epoch < lease.epoch) known = &lease;
    }
    for (const auto& [node, record] : last) {
        Demand* demand = find(record->model);
        LiveLease live{.record = *record, .demand = demand, .expires = start + rules_.grace};
        for (LeasedPiece& leased : live.record.pieces) {
            if (demand == nullptr || !demand->offer().cells_of(leased.piece)) {
                return fail(ErrorKind::invalid, "the lease of {} is of experts that are not offered", to_hex(node));
            }
            // Heartbeats and later proofs are not written: what served then is taken to serve, until it is proved
            // again or the time for that is over.
            const bool served = leased.serving();
            leased.since = std::min(leased.since, start);
            if (served) {
                leased.proved = std::max(leased.proved, start + rules_.prove_within);
            } else {
                leased.since = leased.proved = start;
            }
        }
        book_.put(std::move(live), rules_);
    }
    for (const std::unique_ptr<Demand>& demand : demands_)
        demand->reprice(Duration(0));
    return {};
}

Instant Market::now() {
    now_ = std::max(now_, clock_.now());
    return now_;
}

Demand* Market::find(const ModelId& model) const {
    for (const std::unique_ptr<Demand>& demand : demands_) {
        if (demand->offer().model() == model) return demand.get();
    }
    return nullptr;
}

WorkerRecord Market::worker(const NodeId& node) const {
    auto found = workers_.find(node);
    return found == workers_.end() ? WorkerRecord{.id = node} : found->second;
}

Status Market::offer(const Offer& offer) {
    std::lock_guard lock(mutex_);
    Demand* known = find(offer.model());
    if (known != nullptr && !std::ranges::equal(known->offer().layers(), offer.layers())) {
        return fail(ErrorKind::invalid, "'{}' has a model id that is on the market with other layers", offer.name());
    }
    const Change change = offer;
    if (Status saved = store_.apply({&change, 1}); !saved) return saved;
    auto shared = std::make_shared<const Offer>(offer);
    if (known != nullptr) {
        known->replace_offer(std::move(shared));
    } else {
        demands_.push_back(std::make_unique<Demand>(std::move(shared), rules_));
    }
    return {};
}

std::vector<std::shared_ptr<const Offer>> Market::offers() const {
    std::lock_guard lock(mutex_);
    std::vector<std::shared_ptr<const Offer>> all;
    for (const std::unique_ptr<Demand>& demand : demands_)
        all.push_back(demand->shared_offer());
    return all;
}

Status Market::tick() {
    std::lock_guard lock(mutex_);
    const Instant time = now();
    const Duration gap = time - ticked_;
    ticked_ = time;
    if (gap > 2 * rules_.heartbeat) pause(gap, time);
    std::vector<Change> changes = std::move(unwritten_ends_);
    check_leases(time, changes);
    reviews_left_ = kReviewsPerTick;
    for (const std::unique_ptr<Demand>& demand : demands_) {
        demand->reprice(gap);
        reviews_left_ += demand->cells_missing();
    }
    Status written = changes.empty() ? Status() : store_.apply(changes);
    if (!written) {
        // A crash before the next try would give these leases back, for as long as the grace lasts.
        unwritten_ends_ = std::move(changes);
        return written;
    }
    unwritten_ends_.clear();
    if (time - saved_ >= rules_.save_popularity) {
        if (Status saved = save_load(time); !saved) return saved;
        saved_ = time;
    }
    if (time - forgot_ >= kForgetEvery) {
        if (Status forgot = store_.forget_leases(time - rules_.receipt_window); !forgot) return forgot;
        forgot_ = time;
    }
    return {};
}

// Nobody's heartbeat or proof could arrive meanwhile.
void Market::pause(Duration gap, Instant time) {
    book_.each([&](LiveLease& lease) {
        lease.expires = std::max(lease.expires, time + rules_.grace);
        for (std::size_t i = 0; i < lease.record.pieces.size(); ++i) {
            const LeasedPiece& leased = lease.record.pieces[i];
            LeaseBook::set_proof(lease, i, leased.since + gap, leased.proved + gap);
        }
        LeaseBook::set_next_check(lease, rules_);
    });
}

void Market::check_leases(Instant time, std::vector<Change>& changes) {
    std::vector<LeaseRecord> ended;
    std::vector<NodeId> shrunk;
    book_.each([&](LiveLease& lease) {
        LeaseEnd end = LeaseEnd::live;
        if (lease.expires <= time) {
            end = LeaseEnd::expired;
        } else if (lease.next_check <= time && check_pieces(lease, time)) {
            const bool any = std::ranges::any_of(lease.record.pieces, [&](const LeasedPiece& leased) {
                return leased.serving() || leased.since + rules_.prove_within > time;
            });
            if (any) {
                shrunk.push_back(lease.record.node);
            } else {
                end = LeaseEnd::unproved;
            }
        }
        if (end == LeaseEnd::live) return;
        ended.push_back(lease.record);
        ended.back().end = end;
        ended.back().ended = time;
    });
    for (LeaseRecord& record : ended) {
        book_.remove(record.node);
        changes.emplace_back(std::move(record));
    }
    for (const NodeId& node : shrunk) {
        LiveLease* live = book_.find(node);
        LeaseRecord record = live->record;
        std::erase_if(record.pieces, [&](const LeasedPiece& leased) {
            return !leased.serving() && leased.since + rules_.prove_within <= time;
        });
        // Where the store fails, the next tick tries again.
        static_cast<void>(put_epoch(live, std::move(record), live->demand, worker(node), time));
    }
}

// Lets proofs run out; true where a piece's time to be proved is over too.
bool Market::check_pieces(LiveLease& lease, Instant time) {
    bool over = false;
    for (std::size_t i = 0; i < lease.record.pieces.size(); ++i) {
        const LeasedPiece& leased = lease.record.pieces[i];
        if (leased.serving() && leased.proved <= time) LeaseBook::set_proof(lease, i, time, time);
        over = over || (!leased.serving() && leased.since + rules_.prove_within <= time);
    }
    LeaseBook::set_next_check(lease, rules_);
    return over;
}

Status Market::save_load(Instant time) {
    std::vector<Change> changes;
    for (const std::unique_ptr<Demand>& demand : demands_) {
        for (std::size_t layer = 0; layer < demand->offer().layers().size(); ++layer)
            changes.emplace_back(demand->load_record(layer, time));
    }
    return store_.apply(changes);
}

Result<std::vector<DemandRow>> Market::demand(const ModelId& model) const {
    std::lock_guard lock(mutex_);
    const Demand* demand = find(model);
    if (demand == nullptr) return fail(ErrorKind::usage, "the model {} is not on the market", to_hex(model));
    std::vector<DemandRow> rows;
    for (std::size_t l = 0; l < demand->offer().layers().size(); ++l) {
        const CellIndex first = demand->offer().first_cell(l);
        for (CellIndex cell = first; cell < demand->offer().first_cell(l + 1); ++cell) {
            DemandRow row{.piece = {demand->offer().layers()[l].layer, cell - first, 1},
                          .serving = demand->serving()[cell],
                          .leased = demand->leased()[cell],
                          .wanted = demand->wanted(cell),
                          .rate = demand->open_rates()[cell],
                          .popularity = demand->popularity(cell),
                          .rows_per_s = demand->rows(cell),
                          .misses_per_s = demand->misses(cell)};
            if (cell > first && rows.back().same(row)) {
                ++rows.back().piece.count;
            } else {
                rows.push_back(row);
            }
        }
    }
    return rows;
}

MarketStats Market::stats() const {
    std::lock_guard lock(mutex_);
    MarketStats stats;
    stats.leases = book_.size();
    for (const std::unique_ptr<Demand>& demand : demands_) {
        stats.cells += demand->offer().cells();
        for (CellIndex cell = 0; cell < demand->offer().cells(); ++cell) {
            stats.cells_missing_leases += demand->leased()[cell] < demand->wanted(cell) ? 1 : 0;
            stats.cells_missing_serving += demand->serving()[cell] < demand->offer().target() ? 1 : 0;
        }
    }
    return stats;
}

}  // namespace kvasir::market
