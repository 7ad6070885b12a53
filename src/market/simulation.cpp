#include "market/simulation.h"

#include <algorithm>
#include <ctime>
#include <numeric>

#include "market/market.h"
#include "market/sqlite_store.h"
#include "market/traffic.h"

namespace kvasir::market {
namespace {

constexpr std::uint32_t kDayMinutes = 24 * 60;
constexpr std::uint32_t kReportMinutes = 10;
constexpr std::uint32_t kSettleMinutes = 12 * 60;
constexpr std::uint32_t kProbeMinutes = 4 * 60;
constexpr std::size_t kLinesAtOnce = 8192;
constexpr int kEnrolTries = 8;
constexpr double kMostlyFull = 0.9;  // a node uses so much of its room: whole experts, whole groups
constexpr std::uint32_t kNever = ~0U;

// One virtual node at work.
struct Agent {
    Caller caller;
    std::string site;
    std::vector<Piece> stored;  // on its disk
    LeaseRecord lease;          // epoch 0: none
    std::vector<double> rows;   // accepted, unpaid, per piece of the lease
    bool online = false;
    bool serving = false;          // the lease's proved pieces count in what is truly there
    std::uint32_t came = 0;        // minutes
    std::uint32_t ready = kNever;  // has its weights, to be probed
    std::uint32_t probed = 0;
    std::uint32_t moves_today = 0;
    bool served_once = false;  // in this session
    double gb_hours_today = 0;
    double gb_hours = 0;
    double pay_today = 0;
};

class Simulation {
  public:
    explicit Simulation(const SimulationOptions& options)
        : options_(options), random_(options.seed), clock_(Instant(std::chrono::hours(24 * 365 * 56))) {
        report_.options = options;
    }

    Result<SimulationReport> run() {
        const std::clock_t start = std::clock();
        if (Status ok = set_up(); !ok) return fail(ok.error());
        const std::uint32_t end = options_.days * kDayMinutes;
        for (minute_ = 0; minute_ < end; ++minute_) {
            if (Status ok = step(); !ok) return fail(ok.error());
        }
        if (Status ok = settle_all(); !ok) return fail(ok.error());
        if (Status ok = finish(); !ok) return fail(ok.error());
        report_.cpu_seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
        return report_;
    }

  private:
    Status set_up() {
        std::vector<OfferLayer> layers;
        for (std::uint32_t layer = 0; layer < options_.layers; ++layer)
            layers.push_back({layer, options_.experts, options_.expert_bytes});
        Result<Offer> offer = Offer::create(sha256({}), "simulated", options_.rules.target, std::move(layers));
        if (!offer) return fail(offer.error());
        offer_ = std::make_shared<const Offer>(std::move(*offer));
        traffic_ = std::make_unique<Traffic>(*offer_, options_.used, options_.tokens_per_s, random_);
        Result<std::unique_ptr<SqliteStore>> store = SqliteStore::open(":memory:");
        if (!store) return fail(store.error());
        store_ = std::move(*store);
        if (Status ok = open_hub(); !ok) return ok;
        if (Status ok = market_->offer(*offer_); !ok) return ok;
        if (Status ok = add_backbones(); !ok) return ok;
        if (Status ok = add_nodes(); !ok) return ok;
        report_.cells = offer_->cells();
        report_.model_gigabytes = static_cast<double>(offer_->bytes()) / 1e9;
        there_.assign(offer_->cells(), 0);
        below_since_.assign(offer_->cells(), 0);
        below_ = uncovered_ = offer_->cells();
        replica_sums_.assign(offer_->cells(), 0);
        row_sums_.assign(offer_->cells() + std::size_t{1}, 0);
        report_.warm_up_minutes = options_.days * kDayMinutes;
        return {};
    }

    Status open_hub() {
        Result<Remembered> remembered = store_->load();
        if (!remembered) return fail(remembered.error());
        if (!registry_)
            registry_ = std::make_unique<Registry>(
                *store_, clock_, [] { return Nonce{}; }, *remembered);
        Result<std::unique_ptr<Market>> market = Market::open(*store_, *registry_, clock_, *remembered, options_.rules);
        if (!market) return fail(market.error());
        market_ = std::move(*market);
        return {};
    }

    Status add_backbones() {
        for (std::uint32_t i = 0; i < options_.backbones; ++i) {
            Result<Identity> identity = Identity::generate();
            if (!identity) return fail(identity.error());
            Result<NodeRecord> node =
                registry_->register_node(fmt::format("192.168.{}.1", i), public_key(*identity), std::nullopt);
            if (!node) return fail(node.error());
            if (Status ok = registry_->set_roles(std::nullopt, node->id, kBackbone); !ok) return ok;
            backbones_.push_back({std::move(*identity), {node->id, node->owner, kBackbone}, 0, {}});
        }
        return {};
    }

    Status add_nodes() {
        nodes_ = make_population(options_.nodes, random_);
        agents_.resize(nodes_.size());
        events_.resize(std::size_t{options_.days} * kDayMinutes);
        std::unordered_map<std::uint32_t, Identity> owners;
        for (std::uint32_t i = 0; i < nodes_.size(); ++i) {
            const VirtualNode& node = nodes_[i];
            std::optional<OwnershipProof> proof;
            if (node.owner != i) {
                auto owner = owners.find(node.owner);
                if (owner == owners.end()) owner = owners.emplace(node.owner, Identity::generate().value()).first;
                const ByteVector message = ownership_message(node_id(node.key));
                proof = OwnershipProof{public_key(owner->second), sign(owner->second, message)};
            }
            Result<NodeRecord> record = registry_->register_node(node.address, node.key, proof);
            if (!record) return fail(record.error());
            agents_[i].caller = {record->id, record->owner, record->roles};
            agents_[i].site = site_of(node.address);
            by_id_.emplace(record->id, i);
            ++report_.nodes_of_kind[static_cast<std::size_t>(node.kind)];
            // Servers come within the first half hour, the others when it is their time.
            schedule(i, node.kind == NodeKind::server ? static_cast<std::uint32_t>(random_.below(30))
                                                      : minutes_away(node, 0, random_));
        }
        return {};
    }

    void schedule(std::uint32_t node, std::uint64_t minute) {
        if (minute < events_.size()) events_[minute].push_back(node);
    }

    bool hub_up() const {
        constexpr std::uint32_t kFrom = kDayMinutes + kDayMinutes / 2;
        return minute_ < kFrom || minute_ >= kFrom + options_.outage_minutes;
    }

    Status step() {
        clock_.advance(options_.rules.heartbeat);
        const bool up = hub_up();
        if (up && !was_up_) {
            if (Status ok = open_hub(); !ok) return ok;
        }
        was_up_ = up;
        for (std::uint32_t node : events_[minute_]) {
            if (Status ok = agents_[node].online ? leave(node) : come(node); !ok) return ok;
        }
        if (up) {
            for (std::size_t i = 0; i < online_.size(); ++i) {
                if (Status ok = beat(online_[i]); !ok) return ok;
            }
        }
        if (minute_ % kReportMinutes == kReportMinutes - 1) {
            if (Status ok = work(up); !ok) return ok;
        }
        if (up && minute_ % kSettleMinutes == kSettleMinutes - 1) {
            if (Status ok = settle_all(); !ok) return ok;
        }
        if (minute_ % kDayMinutes == kDayMinutes - 1) end_day();
        if (up) {
            if (Status ok = market_->tick(); !ok) return ok;
        }
        count_coverage();
        return {};
    }

    Status come(std::uint32_t index) {
        Agent& agent = agents_[index];
        agent.online = true;
        agent.served_once = false;
        agent.came = minute_;
        agent.ready = kNever;
        online_.push_back(index);
        schedule(index, minute_ + minutes_here(nodes_[index], minute_, random_));
        return hub_up() ? enrol(index) : Status();
    }

    Status leave(std::uint32_t index) {
        Agent& agent = agents_[index];
        agent.online = false;
        std::erase(online_, index);
        schedule(index, minute_ + minutes_away(nodes_[index], minute_, random_));
        if (!nodes_[index].liar) {
            ++sessions_;
            never_served_ += agent.served_once ? 0 : 1;
        }
        const std::uint64_t epoch = agent.lease.epoch;
        drop_lease(index);
        // Half of them just vanish.
        if (epoch == 0 || !hub_up() || random_.chance(0.5)) return {};
        return market_->release(agent.caller, epoch);
    }

    // What is truly there: +1 or -1 replica of the lease's proved pieces.
    void count_serving(const Agent& agent, int change) {
        for (const LeasedPiece& leased : agent.lease.pieces) {
            if (!leased.serving()) continue;
            const Offer::Cells cells = offer_->cells_of(leased.piece).value();
            for (CellIndex cell = cells.first; cell < cells.end; ++cell)
                count_cell(cell, change);
        }
    }

    void count_cell(CellIndex cell, int change) {
        const std::uint32_t target = options_.rules.target;
        const std::uint32_t before = there_[cell];
        const std::uint32_t after = there_[cell] += static_cast<std::uint32_t>(change);
        uncovered_ += static_cast<std::uint32_t>(after == 0) - static_cast<std::uint32_t>(before == 0);
        if (before >= target && after < target) {
            ++below_;
            below_since_[cell] = minute_;
        } else if (before < target && after >= target) {
            --below_;
            if (warm()) {
                report_.longest_below_minutes = std::max(report_.longest_below_minutes, minute_ - below_since_[cell]);
            }
        }
    }

    bool warm() const { return report_.warm_up_minutes < options_.days * kDayMinutes; }

    void drop_lease(std::uint32_t index) {
        Agent& agent = agents_[index];
        if (agent.serving) count_serving(agent, -1);
        agent.serving = false;
        owe(agent);
        agent.lease = {};
        agent.rows.clear();
    }

    // The lease as the hub has it now.
    void take_lease(std::uint32_t index, LeaseRecord lease) {
        Agent& agent = agents_[index];
        drop_lease(index);
        agent.lease = std::move(lease);
        agent.rows.assign(agent.lease.pieces.size(), 0);
        agent.serving = agent.online && agent.lease.epoch != 0;
        if (agent.serving) count_serving(agent, 1);
    }

    Status enrol(std::uint32_t index) {
        Agent& agent = agents_[index];
        const VirtualNode& node = nodes_[index];
        const bool had_lease = agent.lease.epoch != 0;
        for (int attempt = 0; attempt < kEnrolTries; ++attempt) {
            Result<NodeView> view = market_->view(agent.caller, agent.site, offer_->model());
            if (!view) return fail(view.error());
            std::vector<Piece> kept = agent.stored;
            kept.insert(kept.end(), view->held.begin(), view->held.end());
            const std::vector<Wish> wishes = choose(view->view, node.budget, kept, options_.rules, index);
            if (wishes.empty()) return {};
            Result<Grant> grant = market_->enrol(agent.caller, agent.site, offer_->model(), wishes);
            if (!grant) {
                // Barred, or moved lately: later.
                if (grant.error().kind == ErrorKind::unavailable) return {};
                return fail(grant.error());
            }
            report_.refused_wishes += grant->refused.size();
            if (grant->lease.epoch != agent.lease.epoch) {
                count_move(agent, grant->lease);
                take_lease(index, std::move(grant->lease));
            }
            if (grant->refused.empty()) break;
        }
        if (!had_lease && agent.lease.epoch != 0) ++report_.enrolments;
        fetch(index);
        return {};
    }

    void count_move(Agent& agent, const LeaseRecord& next) {
        std::vector<Piece> before;
        for (const LeasedPiece& leased : agent.lease.pieces)
            before.push_back(leased.piece);
        const bool kept_all = std::ranges::all_of(before, [&](const Piece& piece) {
            std::uint32_t kept = 0;
            for (const LeasedPiece& leased : next.pieces) {
                if (leased.piece.layer != piece.layer) continue;
                const std::uint32_t first = std::max(piece.first, leased.piece.first);
                const std::uint32_t end = std::min(piece.first + piece.count, leased.piece.first + leased.piece.count);
                kept += first < end ? end - first : 0;
            }
            return kept == piece.count;
        });
        if (kept_all) return;
        ++report_.moves;
        ++agent.moves_today;
        report_.most_moves_in_a_day = std::max(report_.most_moves_in_a_day, agent.moves_today);
    }

    // Downloads what the lease has and the disk hasn't.
    void fetch(std::uint32_t index) {
        Agent& agent = agents_[index];
        if (agent.lease.epoch == 0) return;
        std::vector<std::uint8_t> stored(offer_->cells(), 0);
        for (const Piece& piece : agent.stored) {
            const Offer::Cells cells = offer_->cells_of(piece).value();
            std::fill(stored.begin() + cells.first, stored.begin() + cells.end, 1);
        }
        std::uint64_t missing = 0;
        std::vector<Piece> pieces;
        for (const LeasedPiece& leased : agent.lease.pieces) {
            const Offer::Cells cells = offer_->cells_of(leased.piece).value();
            for (CellIndex cell = cells.first; cell < cells.end; ++cell)
                missing += stored[cell] == 0 ? offer_->layers()[cells.layer].expert_bytes : 0;
            pieces.push_back(leased.piece);
        }
        const std::uint64_t per_minute = nodes_[index].budget.download_bytes_per_s * 60;
        agent.ready = minute_ + 1 + static_cast<std::uint32_t>((missing + per_minute - 1) / per_minute);
        fetching_[index] = normalized(std::move(pieces));
    }

    Status beat(std::uint32_t index) {
        Agent& agent = agents_[index];
        if (agent.lease.epoch == 0) {
            // Nothing fitted or it is barred: it asks again now and then.
            return (minute_ - agent.came) % 10 == 9 ? enrol(index) : Status();
        }
        ++report_.heartbeats;
        const Renewal renewal = market_->renew(agent.caller, agent.site, agent.lease.epoch);
        if (renewal.state == RenewalState::lost) {
            drop_lease(index);
            return enrol(index);
        }
        if (renewal.state == RenewalState::changed) {
            if (Status ok = take_current(index); !ok) return ok;
        }
        if (agent.ready == minute_ || (agent.ready < minute_ && minute_ - agent.probed >= kProbeMinutes)) {
            if (agent.ready == minute_) {
                auto fetched = fetching_.find(index);
                agent.stored = std::move(fetched->second);
                fetching_.erase(fetched);
            }
            if (Status ok = probe(index); !ok) return ok;
        }
        // Not in the middle of a download.
        if (renewal.review && agent.ready < minute_) return enrol(index);
        return {};
    }

    Status take_current(std::uint32_t index) {
        Result<Grant> grant = market_->lease(agents_[index].caller);
        if (!grant) return fail(grant.error());
        take_lease(index, std::move(grant->lease));
        return {};
    }

    Status probe(std::uint32_t index) {
        Agent& agent = agents_[index];
        agent.probed = minute_;
        ProbeReport probe{.node = agent.caller.node, .epoch = agent.lease.epoch, .passed = {}, .failed = {}};
        (nodes_[index].liar ? probe.failed : probe.passed) = agent.stored;
        if (nodes_[index].liar) ++report_.convictions;
        const Caller& prober = backbones_[index % backbones_.size()].caller;
        if (Status ok = market_->report_probe(prober, probe); !ok) return ok;
        if (nodes_[index].liar) {
            agent.stored.clear();
            return {};  // it learns of its fate by its next heartbeat
        }
        if (Status ok = take_current(index); !ok) return ok;
        if (!agent.served_once) waits_.push_back(minute_ - agent.came);
        agent.served_once = true;
        return {};
    }

    // What was asked in the last minutes, and who answered.
    Status work(bool up) {
        constexpr double kSeconds = kReportMinutes * 60.0;
        for (std::size_t l = 0; l < offer_->layers().size(); ++l) {
            LoadReport load{.model = offer_->model(), .layer = offer_->layers()[l].layer, .parts = {}};
            const CellIndex first = offer_->first_cell(l);
            for (CellIndex cell = first; cell < offer_->first_cell(l + 1); ++cell) {
                const double rows = traffic_->rows(cell, minute_, kSeconds);
                const auto whole = static_cast<std::uint64_t>(rows);
                load.parts.push_back({cell - first, 1, whole, there_[cell] == 0 ? whole : 0});
                row_sums_[cell + 1] = row_sums_[cell] + (there_[cell] == 0 ? 0 : rows / there_[cell]);
                replica_sums_[cell] += there_[cell];
            }
            if (!up) continue;
            if (Status ok = market_->report_load(backbones_[l % backbones_.size()].caller, load); !ok) return ok;
        }
        ++works_;
        for (std::uint32_t index : online_) {
            Agent& agent = agents_[index];
            given_bytes_ += static_cast<double>(nodes_[index].budget.memory_bytes);
            if (!agent.serving) continue;
            std::uint64_t served = 0;
            for (std::size_t i = 0; i < agent.lease.pieces.size(); ++i) {
                const LeasedPiece& leased = agent.lease.pieces[i];
                if (!leased.serving()) continue;
                const Offer::Cells cells = offer_->cells_of(leased.piece).value();
                agent.rows[i] += row_sums_[cells.end] - row_sums_[cells.first];
                served += leased.piece.count;
            }
            const double gb_hours = static_cast<double>(served * options_.expert_bytes) / 1e9 * kReportMinutes / 60.0;
            agent.gb_hours += gb_hours;
            agent.gb_hours_today += gb_hours;
        }
        online_sum_ += static_cast<double>(online_.size());
        return {};
    }

    // Hands the node's accepted rows to a backbone, to be put in its next receipt.
    void owe(Agent& agent) {
        for (std::size_t i = 0; i < agent.rows.size(); ++i) {
            const auto rows = static_cast<std::uint64_t>(agent.rows[i]);
            if (rows == 0) continue;
            agent.rows[i] -= static_cast<double>(rows);
            Backbone& payer = backbones_[next_payer_++ % backbones_.size()];
            payer.lines.push_back({agent.caller.node, agent.lease.epoch, agent.lease.pieces[i].piece, rows});
        }
    }

    Status settle_all() {
        for (std::uint32_t index : online_)
            owe(agents_[index]);
        for (Backbone& backbone : backbones_) {
            for (std::size_t first = 0; first < backbone.lines.size(); first += kLinesAtOnce) {
                Receipt receipt{.backbone = backbone.caller.node,
                                .sequence = ++backbone.sequence,
                                .model = offer_->model(),
                                .lines = {}};
                const std::size_t end = std::min(backbone.lines.size(), first + kLinesAtOnce);
                receipt.lines.assign(backbone.lines.begin() + static_cast<std::ptrdiff_t>(first),
                                     backbone.lines.begin() + static_cast<std::ptrdiff_t>(end));
                const ByteVector bytes = encode(receipt);
                Result<Settlement> settled = market_->settle(bytes, sign(backbone.identity, bytes));
                if (!settled) return fail(settled.error());
            }
            backbone.lines.clear();
        }
        return collect_pay();
    }

    Status collect_pay() {
        Status visited = store_->visit_entries(entries_seen_ + 1, [&](const Entry& entry) {
            Agent& agent = agents_[by_id_.at(entry.worker)];
            agent.pay_today += static_cast<double>(entry.amount) / 1e6;
            const auto kind = static_cast<std::size_t>(nodes_[by_id_.at(entry.worker)].kind);
            report_.pay_per_gb_hour[kind] += static_cast<double>(entry.amount) / 1e6;
            entries_seen_ = entry.number;
            return true;
        });
        return visited;
    }

    void end_day() {
        std::vector<double> pay;
        std::vector<double> steady;
        for (std::size_t i = 0; i < agents_.size(); ++i) {
            Agent& agent = agents_[i];
            const double gigabytes = static_cast<double>(nodes_[i].budget.memory_bytes) / 1e9;
            if (agent.gb_hours_today >= gigabytes * kMostlyFull) pay.push_back(agent.pay_today / agent.gb_hours_today);
            if (agent.gb_hours_today >= 20 * gigabytes * kMostlyFull) {
                steady.push_back(agent.pay_today / agent.gb_hours_today);
            }
            agent.gb_hours_today = agent.pay_today = 0;
            agent.moves_today = 0;
        }
        report_.gini_by_day.push_back(gini(std::move(pay)));
        report_.gini_of_steady_by_day.push_back(gini(std::move(steady)));
    }

    void count_coverage() {
        if (!warm()) {
            if (below_ == 0) report_.warm_up_minutes = minute_;
            return;
        }
        ++counted_;
        below_sum_ += below_;
        uncovered_sum_ += uncovered_;
    }

    Status finish() {
        const double total = static_cast<double>(counted_) * static_cast<double>(report_.cells);
        report_.covered_share = counted_ > 0 ? 1 - static_cast<double>(below_sum_) / total : 0;
        report_.uncovered_share = counted_ > 0 ? static_cast<double>(uncovered_sum_) / total : 1;
        for (CellIndex cell = 0; warm() && cell < offer_->cells(); ++cell) {
            if (there_[cell] >= options_.rules.target) continue;
            report_.longest_below_minutes = std::max(report_.longest_below_minutes, minute_ - below_since_[cell]);
        }
        report_.mean_online = online_sum_ / works_;
        report_.mean_online_gigabytes = given_bytes_ / works_ / 1e9;
        report_.moves_per_node_day =
            static_cast<double>(report_.moves) / std::max(1.0, report_.mean_online * options_.days);
        std::ranges::sort(waits_);
        if (!waits_.empty()) {
            report_.median_wait_minutes = waits_[waits_.size() / 2];
            report_.p99_wait_minutes = waits_[waits_.size() * 99 / 100];
        }
        report_.never_served_share = static_cast<double>(never_served_) / std::max<double>(1, sessions_);
        count_replicas();
        std::array<double, kNodeKinds> gb_hours{};
        for (std::size_t i = 0; i < agents_.size(); ++i)
            gb_hours[static_cast<std::size_t>(nodes_[i].kind)] += agents_[i].gb_hours;
        for (std::size_t kind = 0; kind < gb_hours.size(); ++kind)
            report_.pay_per_gb_hour[kind] /= std::max(1e-9, gb_hours[kind]);
        Result<LedgerState> ledger = store_->ledger();
        if (!ledger) return fail(ledger.error());
        report_.paid = ledger->total;
        report_.ledger_entries = ledger->entries;
        return store_->check_ledger();
    }

    void count_replicas() {
        std::vector<CellIndex> order(offer_->cells());
        std::iota(order.begin(), order.end(), 0U);
        std::ranges::stable_sort(order, {}, [&](CellIndex cell) { return traffic_->share(cell); });
        report_.fewest_mean_replicas = 1e9;
        for (std::size_t i = 0; i < order.size(); ++i) {
            const double mean = static_cast<double>(replica_sums_[order[i]]) / works_;
            report_.replicas_by_decile[i * 10 / order.size()] += mean * 10 / static_cast<double>(order.size());
            report_.fewest_mean_replicas = std::min(report_.fewest_mean_replicas, mean);
        }
    }

    struct Backbone {
        Identity identity;
        Caller caller;
        std::uint64_t sequence = 0;
        std::vector<ReceiptLine> lines;
    };

    SimulationOptions options_;
    SimulationReport report_;
    Random random_;
    ManualClock clock_;
    std::shared_ptr<const Offer> offer_;
    std::unique_ptr<Traffic> traffic_;
    std::unique_ptr<SqliteStore> store_;
    std::unique_ptr<Registry> registry_;
    std::unique_ptr<Market> market_;
    bool was_up_ = true;
    std::vector<Backbone> backbones_;
    std::size_t next_payer_ = 0;
    std::vector<VirtualNode> nodes_;
    std::vector<Agent> agents_;
    std::unordered_map<NodeId, std::uint32_t, DigestHash> by_id_;
    std::unordered_map<std::uint32_t, std::vector<Piece>> fetching_;
    std::vector<std::vector<std::uint32_t>> events_;  // per minute: who comes or leaves
    std::vector<std::uint32_t> online_;
    std::uint32_t minute_ = 0;

    std::vector<std::uint32_t> there_;  // replicas that truly serve, per cell
    std::vector<std::uint32_t> below_since_;
    std::uint32_t below_ = 0;
    std::uint32_t uncovered_ = 0;
    std::uint64_t counted_ = 0;
    std::uint64_t below_sum_ = 0;
    std::uint64_t uncovered_sum_ = 0;
    std::vector<std::uint64_t> replica_sums_;
    std::vector<double> row_sums_;  // [i]: rows each replica answered, of the cells before i
    double works_ = 0;
    double online_sum_ = 0;
    double given_bytes_ = 0;
    std::vector<std::uint32_t> waits_;
    std::uint64_t sessions_ = 0;
    std::uint64_t never_served_ = 0;
    std::uint64_t entries_seen_ = 0;
};

}  // namespace

Result<SimulationReport> simulate(const SimulationOptions& options) {
    if (options.nodes == 0 || options.days == 0 || options.backbones == 0) {
        return fail(ErrorKind::usage, "a simulation needs nodes, days and backbones");
    }
    return std::make_unique<Simulation>(options)->run();
}

double gini(std::vector<double> values) {
    std::ranges::sort(values);
    double sum = 0;
    double weighted = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
        sum += values[i];
        weighted += static_cast<double>(i + 1) * values[i];
    }
    if (sum <= 0) return 0;
    const auto count = static_cast<double>(values.size());
    return 2 * weighted / (count * sum) - (count + 1) / count;
}

}  // namespace kvasir::market
