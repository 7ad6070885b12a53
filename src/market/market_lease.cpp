// The market's half that gives, keeps and ends leases.
#include <algorithm>

#include "market/market.h"

namespace kvasir::market {
namespace {

constexpr std::uint8_t kHeld = 1;
constexpr std::uint8_t kTaken = 2;

std::uint64_t cells_in(std::span<const LeasedPiece> pieces) {
    std::uint64_t cells = 0;
    for (const LeasedPiece& leased : pieces)
        cells += leased.piece.count;
    return cells;
}

// The part of `piece` that lies in `range`; count 0 where there is none.
Piece common(const Piece& piece, const Piece& range) {
    if (piece.layer != range.layer) return {};
    const std::uint32_t first = std::max(piece.first, range.first);
    const std::uint32_t end = std::min(piece.first + piece.count, range.first + range.count);
    return first < end ? Piece{piece.layer, first, end - first} : Piece{};
}

bool within(const Piece& piece, const Piece& range) {
    return common(piece, range) == piece;
}

std::uint64_t cells_kept(std::span<const LeasedPiece> before, std::span<const LeasedPiece> after) {
    std::uint64_t kept = 0;
    for (const LeasedPiece& old : before) {
        for (const LeasedPiece& leased : after)
            kept += common(old.piece, leased.piece).count;
    }
    return kept;
}

// Neighbours that both serve become one piece, proved as long as both are.
std::vector<LeasedPiece> joined(std::span<const LeasedPiece> pieces) {
    std::vector<LeasedPiece> all;
    for (const LeasedPiece& leased : pieces) {
        LeasedPiece* last = all.empty() ? nullptr : &all.back();
        if (last == nullptr || last->piece.layer != leased.piece.layer ||
            last->piece.first + last->piece.count != leased.piece.first || !last->serving() || !leased.serving()) {
            all.push_back(leased);
            continue;
        }
        last->piece.count += leased.piece.count;
        last->since = std::min(last->since, leased.since);
        last->proved = std::min(last->proved, leased.proved);
    }
    return all;
}

bool is_report(const Piece& leased, std::span<const Piece> reported) {
    return std::ranges::any_of(reported, [&](const Piece& range) { return within(leased, range); });
}

}  // namespace

Grant Market::grant_of(const LiveLease* lease, Instant time) const {
    if (lease == nullptr) return {};
    return {lease->record, {}, std::max(Duration(0), lease->expires - time)};
}

Result<NodeView> Market::view(const Caller& caller, const std::string& site, const ModelId& model) {
    std::lock_guard lock(mutex_);
    const Demand* demand = find(model);
    if (demand == nullptr) return fail(ErrorKind::usage, "the model {} is not on the market", to_hex(model));
    NodeView view;
    view.view.offer = demand->shared_offer();
    view.view.rates.assign(demand->open_rates().begin(), demand->open_rates().end());
    view.view.loads.assign(demand->loads().begin(), demand->loads().end());
    if (const LiveLease* live = book_.find(caller.node); live != nullptr && live->demand == demand) {
        for (const LeasedPiece& leased : live->record.pieces) {
            view.held.push_back(leased.piece);
            const Offer::Cells cells = demand->offer().cells_of(leased.piece).value();
            for (CellIndex cell = cells.first; cell < cells.end; ++cell)
                view.view.rates[cell] = demand->held_rates()[cell];
        }
    }
    std::vector<std::uint8_t> taken(demand->offer().cells(), 0);
    book_.mark_taken(*demand, caller.node, caller.owner, site, kTaken, taken);
    for (CellIndex cell = 0; cell < taken.size(); ++cell) {
        if (taken[cell] != 0) view.view.rates[cell] = 0;
    }
    return view;
}

Result<std::vector<Wish>> Market::checked(const Demand& demand, std::span<const Wish> wishes) const {
    if (wishes.empty()) return fail(ErrorKind::invalid, "an enrolment without pieces: release the lease instead");
    if (wishes.size() > rules_.max_pieces) {
        return fail(ErrorKind::invalid, "{} pieces are more than the {} a lease may have", wishes.size(),
                    rules_.max_pieces);
    }
    std::vector<Wish> sorted(wishes.begin(), wishes.end());
    std::ranges::sort(sorted, {}, &Wish::piece);
    for (std::size_t i = 0; i < sorted.size(); ++i) {
        if (Result<Offer::Cells> cells = demand.offer().cells_of(sorted[i].piece); !cells) return fail(cells.error());
        if (i > 0 && common(sorted[i - 1].piece, sorted[i].piece).count > 0) {
            return fail(ErrorKind::invalid, "two pieces of layer {} overlap at expert {}", sorted[i].piece.layer,
                        sorted[i].piece.first);
        }
    }
    return sorted;
}

Market::Sorted Market::sort_wishes(const Demand& demand, const LiveLease* live, const std::vector<std::uint8_t>& marks,
                                   std::span<const Wish> wishes) const {
    Sorted sorted;
    for (const Wish& wish : wishes) {
        const Offer::Cells cells = demand.offer().cells_of(wish.piece).value();
        unsigned __int128 sum = 0;
        bool fresh = false;
        bool taken = false;
        for (CellIndex cell = cells.first; cell < cells.end; ++cell) {
            const bool held = marks[cell] == kHeld;
            sum += held ? demand.held_rates()[cell] : demand.open_rates()[cell];
            fresh = fresh || !held;
            taken = taken || marks[cell] == kTaken;
        }
        const auto least = static_cast<unsigned __int128>(wish.rate) * (100 - rules_.slack_percent) * wish.piece.count;
        if (!fresh || (!taken && sum * 100 >= least)) {
            sorted.pieces.push_back(wish.piece);
            continue;
        }
        sorted.refused.push_back(wish);
        // What the node has of it stays: it did not want to give it up.
        if (live == nullptr) continue;
        for (const LeasedPiece& leased : live->record.pieces) {
            if (Piece kept = common(leased.piece, wish.piece); kept.count > 0) sorted.pieces.push_back(kept);
        }
    }
    return sorted;
}

// Held parts keep their rates and proofs, runs between them get the mean rate of now.
std::vector<LeasedPiece> Market::compose(const Demand& demand, const LiveLease* live, std::vector<Piece> pieces,
                                         Instant time) const {
    std::vector<LeasedPiece> composed;
    auto add_fresh = [&](const Piece& piece) {
        if (piece.count == 0) return;
        composed.push_back({piece, demand.mean_of(demand.open_rates(), piece), time, time});
    };
    for (Piece rest : normalized(std::move(pieces))) {
        if (live != nullptr) {
            for (const LeasedPiece& leased : live->record.pieces) {  // sorted
                const Piece held = common(leased.piece, rest);
                if (held.count == 0) continue;
                add_fresh({rest.layer, rest.first, held.first - rest.first});
                composed.push_back(leased);
                composed.back().piece = held;
                const std::uint32_t next = held.first + held.count;
                rest.count -= next - rest.first;
                rest.first = next;
            }
        }
        add_fresh(rest);
    }
    return composed;
}

Status Market::check_move(const LiveLease* live, const std::vector<LeasedPiece>& pieces, bool same_model,
                          WorkerRecord& known, Instant time) const {
    if (live == nullptr) {
        known.moved = time;
        return {};
    }
    if (same_model && cells_kept(live->record.pieces, pieces) == cells_in(live->record.pieces)) return {};
    if (time < known.moved + rules_.dwell) {
        return fail(ErrorKind::unavailable, "this node moved {} s ago: it may give up pieces for others in {} s",
                    (time - known.moved).count() / 1000, (known.moved + rules_.dwell - time).count() / 1000);
    }
    known.moved = time;
    return {};
}

Result<Grant> Market::enrol(const Caller& caller, const std::string& site, const ModelId& model,
                            std::span<const Wish> wishes) {
    std::lock_guard lock(mutex_);
    const Instant time = now();
    if (!caller.may(kWorker)) return fail(ErrorKind::usage, "only a node with the role of a worker leases experts");
    WorkerRecord known = worker(caller.node);
    if (time < known.barred_until) {
        return fail(ErrorKind::unavailable, "this node failed a probe: it may lease again in {} s",
                    (known.barred_until - time).count() / 1000);
    }
    Demand* demand = find(model);
    if (demand == nullptr) return fail(ErrorKind::usage, "the model {} is not on the market", to_hex(model));
    Result<std::vector<Wish>> sorted = checked(*demand, wishes);
    if (!sorted) return fail(sorted.error());

    // From another site it is another replica: nothing of the one before is kept, and to leave it is no move.
    const LiveLease* live = book_.find(caller.node);
    const bool stayed = live != nullptr && live->record.site == site;
    const LiveLease* kept = stayed && live->demand == demand ? live : nullptr;
    std::vector<std::uint8_t> marks(demand->offer().cells(), 0);
    if (kept != nullptr) {
        for (const LeasedPiece& leased : kept->record.pieces) {
            const Offer::Cells cells = demand->offer().cells_of(leased.piece).value();
            std::fill(marks.begin() + cells.first, marks.begin() + cells.end, kHeld);
        }
    }
    book_.mark_taken(*demand, caller.node, caller.owner, site, kTaken, marks);
    Sorted found = sort_wishes(*demand, kept, marks, *sorted);
    std::vector<LeasedPiece> pieces = compose(*demand, kept, std::move(found.pieces), time);
    if (pieces.size() > rules_.max_pieces) {
        return fail(ErrorKind::unavailable, "with what it holds these are {} pieces, more than the {} a lease may have",
                    pieces.size(), rules_.max_pieces);
    }
    const bool unchanged = kept != nullptr && kept->record.pieces == pieces;
    if (!unchanged && !pieces.empty()) {
        if (Status ok = check_move(stayed ? live : nullptr, pieces, kept != nullptr, known, time); !ok)
            return fail(ok.error());
        LeaseRecord record;
        record.node = caller.node;
        record.model = model;
        record.owner = caller.owner;
        record.site = site;
        record.priced = kept != nullptr ? kept->record.priced : time;
        record.pieces = std::move(pieces);
        if (Status ok = put_epoch(live, std::move(record), demand, known, time); !ok) return fail(ok.error());
    }
    Grant grant = grant_of(book_.find(caller.node), time);
    grant.refused = std::move(found.refused);
    return grant;
}

Status Market::put_epoch(const LiveLease* live, LeaseRecord record, Demand* demand, WorkerRecord known, Instant time) {
    record.epoch = known.epoch = known.epoch + 1;
    record.granted = time;
    std::vector<Change> changes;
    Instant expires = time + rules_.lease;
    if (live != nullptr) {
        expires = std::max(expires, live->expires);
        LeaseRecord before = live->record;
        before.end = LeaseEnd::replaced;
        before.ended = time;
        changes.emplace_back(std::move(before));
    }
    changes.emplace_back(record);
    changes.emplace_back(known);
    if (Status written = store_.apply(changes); !written) return written;
    workers_[known.id] = known;
    book_.put({.record = std::move(record), .demand = demand, .expires = expires}, rules_);
    return {};
}

Renewal Market::renew(const Caller& caller, const std::string& site, std::uint64_t epoch) {
    std::lock_guard lock(mutex_);
    const Instant time = now();
    LiveLease* live = book_.find(caller.node);
    // From another site it is another replica: what others have there counts for that one.
    if (live == nullptr || live->record.site != site) return {};
    // A heartbeat that comes late, but before the lease was taken away, is good.
    live->expires = std::max(live->expires, time + rules_.lease);
    if (time - live->record.priced >= rules_.term && reprice_lease(*live, time)) live = book_.find(caller.node);
    Renewal renewal{.epoch = live->record.epoch, .valid_for = live->expires - time};
    renewal.state = renewal.epoch == epoch ? RenewalState::valid : RenewalState::changed;
    renewal.review = worth_a_review(*live, time);
    return renewal;
}

// Sets the rates anew, as if the node came now. Where the store fails, the next heartbeat tries again.
bool Market::reprice_lease(LiveLease& lease, Instant time) {
    LeaseRecord record = lease.record;
    record.pieces = joined(record.pieces);
    for (LeasedPiece& leased : record.pieces)
        leased.rate = lease.demand->mean_of(lease.demand->held_rates(), leased.piece);
    record.priced = time;
    return put_epoch(&lease, std::move(record), lease.demand, worker(lease.record.node), time).has_value();
}

bool Market::worth_a_review(const LiveLease& lease, Instant time) {
    if (reviews_left_ == 0) return false;
    const Rate best = lease.demand->best_open();
    const bool better = std::ranges::any_of(lease.record.pieces, [&](const LeasedPiece& leased) {
        return best * 100 > lease.demand->mean_held(leased.piece) * (100 + rules_.gain_percent);
    });
    if (!better) return false;
    auto known = workers_.find(lease.record.node);
    if (known != workers_.end() && time < known->second.moved + rules_.dwell) return false;
    --reviews_left_;
    return true;
}

Result<Grant> Market::lease(const Caller& caller) {
    std::lock_guard lock(mutex_);
    return grant_of(book_.find(caller.node), now());
}

Status Market::end_lease(const NodeId& node, LeaseEnd end, Instant time) {
    LiveLease* live = book_.find(node);
    LeaseRecord record = live->record;
    record.end = end;
    record.ended = time;
    const Change change = std::move(record);
    if (Status written = store_.apply({&change, 1}); !written) return written;
    book_.remove(node);
    return {};
}

Status Market::release(const Caller& caller, std::uint64_t epoch) {
    std::lock_guard lock(mutex_);
    const LiveLease* live = book_.find(caller.node);
    if (live == nullptr || live->record.epoch != epoch) return {};
    return end_lease(caller.node, LeaseEnd::released, now());
}

Status Market::evict(const std::optional<Caller>& by, const NodeId& node) {
    std::lock_guard lock(mutex_);
    if (by && !by->may(kAdmin)) return fail(ErrorKind::usage, "only an admin may do that");
    if (book_.find(node) == nullptr) return {};
    return end_lease(node, LeaseEnd::revoked, now());
}

Status Market::report_probe(const Caller& caller, const ProbeReport& report) {
    std::lock_guard lock(mutex_);
    const Instant time = now();
    if (!caller.may(kBackbone) && !caller.may(kAdmin)) {
        return fail(ErrorKind::usage, "only backbones and admins report probes");
    }
    LiveLease* live = book_.find(report.node);
    if (live == nullptr || live->record.epoch != report.epoch) {
        return fail(ErrorKind::unavailable, "node {} has no lease of epoch {} (any more)", to_hex(report.node),
                    report.epoch);
    }
    if (caller.owner == live->record.owner) {
        return fail(ErrorKind::usage, "a probe by the worker's own owner proves nothing");
    }
    if (!report.failed.empty()) return convict(report.node, time);
    std::vector<std::size_t> proved;
    bool first_time = false;
    LeaseRecord record = live->record;
    for (std::size_t i = 0; i < record.pieces.size(); ++i) {
        if (!is_report(record.pieces[i].piece, report.passed)) continue;
        proved.push_back(i);
        first_time = first_time || !record.pieces[i].serving();
        record.pieces[i].proved = std::max(time, record.pieces[i].since) + rules_.proof;
    }
    if (first_time) {
        const Change change = record;
        if (Status written = store_.apply({&change, 1}); !written) return written;
    }
    for (std::size_t i : proved)
        LeaseBook::set_proof(*live, i, record.pieces[i].since, record.pieces[i].proved);
    LeaseBook::set_next_check(*live, rules_);
    return {};
}

Status Market::convict(const NodeId& node, Instant time) {
    WorkerRecord known = worker(node);
    known.failures = forgiven(rules_, known.failures, time - known.failed) + 1;
    known.failed = time;
    known.barred_until = time + bar_after(rules_, known.failures);
    LeaseRecord record = book_.find(node)->record;
    record.end = LeaseEnd::convicted;
    record.ended = time;
    const std::array<Change, 2> changes = {std::move(record), known};
    if (Status written = store_.apply(changes); !written) return written;
    workers_[node] = known;
    book_.remove(node);
    return {};
}

}  // namespace kvasir::market
