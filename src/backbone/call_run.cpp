#include "backbone/call_run.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "backbone/call_board.h"
#include "backbone/call_plan.h"

namespace kvasir {
namespace {

using std::chrono::duration;
using std::chrono::steady_clock;

constexpr double kLocalCostLasts = 5;     // seconds
constexpr double kShareOfDeadline = 0.5;  // expected to be used up by an answer, at most
constexpr double kPatience = 4;           // times what computing here takes: then the answer isn't worth waiting for
constexpr std::chrono::microseconds kAwake{200};  // the most that is waited for without sleeping
constexpr std::uint32_t kMostAsked = 2;           // workers asked for one share, one after the other

double seconds(steady_clock::duration time) {
    return duration<double>(time).count();
}

steady_clock::duration from_seconds(double time) {
    return std::chrono::duration_cast<steady_clock::duration>(duration<double>(time));
}

std::uint32_t size32(std::size_t size) {
    return static_cast<std::uint32_t>(size);
}

Status check_call(const ExpertCall& call) {
    if (call.row_size() == 0 || call.rows.size() % call.row_size() != 0) {
        return fail(ErrorKind::internal, "layer {}: {} bytes are no rows of {} columns", call.layer, call.rows.size(),
                    call.hidden);
    }
    if (call.pairs.size() > std::numeric_limits<std::uint32_t>::max() ||
        call.out.size() != call.pairs.size() * call.hidden) {
        return fail(ErrorKind::internal, "layer {}: {} pairs of {} values don't fit {} values of output", call.layer,
                    call.pairs.size(), call.hidden, call.out.size());
    }
    std::size_t rows = call.row_count();
    for (const Pair& pair : call.pairs) {
        if (pair.row >= rows) {
            return fail(ErrorKind::internal, "layer {}: row {} of {}", call.layer, pair.row, rows);
        }
    }
    return {};
}

// The rows that some pairs use, each once, and the pairs with their numbers changed accordingly.
struct Excerpt {
    std::vector<Pair> pairs;
    ByteVector copied;
    ByteSpan rows;
};

Excerpt excerpt(const ExpertCall& call, std::span<const std::uint32_t> indices) {
    constexpr std::uint32_t kUnused = std::numeric_limits<std::uint32_t>::max();
    std::vector<std::uint32_t> number(call.row_count(), kUnused);
    for (std::uint32_t index : indices)
        number[call.pairs[index].row] = 0;
    std::uint32_t used = 0;
    for (std::uint32_t& entry : number) {
        if (entry != kUnused) entry = used++;
    }
    Excerpt result;
    result.pairs.reserve(indices.size());
    for (std::uint32_t index : indices) {
        const Pair& pair = call.pairs[index];
        result.pairs.push_back({number[pair.row], pair.expert});
    }
    if (used == number.size()) {
        result.rows = call.rows;
        return result;
    }
    const std::size_t size = call.row_size();
    result.copied.reserve(used * size);
    for (std::size_t row = 0; row < number.size(); ++row) {
        if (number[row] == kUnused) continue;
        ByteSpan source = call.rows.subspan(row * size, size);
        result.copied.insert(result.copied.end(), source.begin(), source.end());
    }
    result.rows = result.copied;
    return result;
}

class CallRun {
  public:
    CallRun(CallContext& context, const ExpertCall& call, LocalExperts& local)
        : context_(context), call_(call), local_(local), book_(context.swarm.book()) {}

    Status run(CallTally& tally);

  private:
    // One asking of one worker.
    struct Asking {
        std::uint32_t share = 0;
        std::uint32_t worker = 0;
        std::uint64_t id = 0;
        bool missed = false;
    };
    // What the caller knows of a share, besides the board.
    struct Progress {
        std::uint32_t times_asked = 0;
        SteadyTime deadline;
        SteadyTime expected;
    };

    CallPlan plan();
    void split_into_shares(CallPlan& plan);
    bool ask(std::uint32_t share, std::uint32_t worker, std::uint64_t epoch);
    SteadyTime patience(std::uint32_t share, SteadyTime deadline) const;
    Status settle();
    SteadyTime next_deadline() const;
    SteadyTime awake_until() const;
    void mark_missed(std::uint32_t share);
    bool ask_replica(std::uint32_t share);
    std::optional<Quote> best_replica(std::uint32_t share) const;
    Status compute_here(std::span<const std::uint32_t> loose, std::span<const std::uint32_t> shares);
    void measure_local();
    Status compute_into(std::span<const Pair> pairs, std::span<float> out);
    void withdraw();
    void count(CallTally& tally) const;

    CallContext& context_;
    const ExpertCall& call_;
    LocalExperts& local_;
    const std::shared_ptr<const ReplicaBook> book_;
    const SteadyTime started_ = steady_clock::now();
    std::vector<Share> shares_;  // of the board, same order
    std::vector<Progress> progress_;
    std::vector<Asking> askings_;  // by ticket
    std::shared_ptr<CallBoard> board_;
    double local_seconds_ = 0;
};

Status CallRun::run(CallTally& tally) {
    CallPlan planned = plan();
    if (planned.remote.empty()) {
        tally.local = call_.pairs.size();
        return compute_into(call_.pairs, call_.out);
    }
    split_into_shares(planned);
    std::vector<std::uint32_t> unasked;
    for (std::uint32_t share = 0; share < shares_.size(); ++share) {
        if (!ask(share, shares_[share].worker, shares_[share].epoch)) unasked.push_back(share);
    }
    Status status = compute_here(planned.local, unasked);
    measure_local();
    if (status) status = settle();
    board_->close();
    withdraw();
    if (status) count(tally);
    return status;
}

CallPlan CallRun::plan() {
    auto pairs = size32(call_.pairs.size());
    std::vector<Quote> quotes;
    for (const ReplicaBook::Holder& holder : book_->holders(call_.layer)) {
        std::optional<Quote> quote = context_.swarm.links()[holder.worker]->quote(pairs, context_.prefer_remote);
        if (!quote) continue;
        quote->worker = holder.worker;
        quotes.push_back(*quote);
    }
    PlanRequest request{call_.layer, call_.pairs, quotes, std::nullopt};
    request.longest = kShareOfDeadline * duration<double>(context_.deadline).count();
    if (!context_.prefer_remote && context_.local_cost.measured()) request.local = context_.local_cost.line(pairs);
    return plan_call(request, *book_);
}

// A share per worker, or several where one request can't hold all its pairs.
void CallRun::split_into_shares(CallPlan& plan) {
    std::vector<std::vector<std::uint32_t>> lists;
    for (Share& share : plan.remote) {
        std::size_t largest = context_.swarm.links()[share.worker]->largest_request(call_);
        largest = std::max<std::size_t>(largest, 1);
        for (std::size_t begin = 0; begin < share.pairs.size(); begin += largest) {
            std::size_t end = std::min(begin + largest, share.pairs.size());
            lists.emplace_back(share.pairs.begin() + static_cast<std::ptrdiff_t>(begin),
                               share.pairs.begin() + static_cast<std::ptrdiff_t>(end));
            shares_.push_back({share.worker, share.epoch, {}});
        }
    }
    progress_.resize(shares_.size());
    board_ = std::make_shared<CallBoard>(call_.out, call_.hidden, std::move(lists));
}

bool CallRun::ask(std::uint32_t share, std::uint32_t worker, std::uint64_t epoch) {
    Excerpt part = excerpt(call_, board_->pairs(share));
    Compute compute;
    compute.epoch = epoch;
    compute.layer = call_.layer;
    compute.hidden = call_.hidden;
    compute.recipe = call_.recipe;
    compute.encoding = call_.row_encoding;
    compute.pairs = part.pairs;
    compute.rows = part.rows;
    std::uint32_t ticket = board_->issue_ticket(share);
    askings_.push_back({share, worker, 0, false});
    auto asked = context_.swarm.links()[worker]->ask(compute, board_, ticket);
    if (!asked) {
        board_->void_ticket(ticket);
        return false;
    }
    askings_.back().id = asked->id;
    ++progress_[share].times_asked;
    progress_[share].deadline = patience(share, asked->deadline);
    progress_[share].expected = asked->expected;
    return true;
}

SteadyTime CallRun::patience(std::uint32_t share, SteadyTime deadline) const {
    SteadyTime latest = std::min(deadline, started_ + context_.deadline);
    if (context_.prefer_remote || !context_.local_cost.measured()) return latest;
    auto pairs = size32(board_->pairs(share).size());
    double here = kPatience * context_.local_cost.line(pairs).at(pairs);
    here = std::max(here, duration<double>(context_.shortest_deadline).count());
    return std::min(latest, steady_clock::now() + from_seconds(here));
}

// Until every share has its rows: waits, asks elsewhere what failed or is overdue, and computes what nobody else can.
Status CallRun::settle() {
    while (board_->wait(next_deadline(), awake_until()) != CallBoard::Event::all_done) {
        SteadyTime now = steady_clock::now();
        std::vector<std::uint32_t> here;
        for (std::uint32_t share = 0; share < shares_.size(); ++share) {
            if (board_->done(share)) continue;
            bool overdue = now >= progress_[share].deadline;
            if (!overdue && !board_->orphaned(share)) continue;
            if (overdue) mark_missed(share);
            if (!ask_replica(share)) here.push_back(share);
        }
        if (here.empty()) continue;
        if (Status status = compute_here({}, here); !status) return status;
    }
    return {};
}

SteadyTime CallRun::next_deadline() const {
    SteadyTime next = steady_clock::now() + context_.deadline;
    for (std::uint32_t share = 0; share < shares_.size(); ++share) {
        if (!board_->done(share)) next = std::min(next, progress_[share].deadline);
    }
    return next;
}

// An answer that is due very soon is awaited awake, and may be a little late.
SteadyTime CallRun::awake_until() const {
    SteadyTime now = steady_clock::now();
    SteadyTime expected = now;
    for (std::uint32_t share = 0; share < shares_.size(); ++share) {
        if (!board_->done(share)) expected = std::max(expected, progress_[share].expected);
    }
    return expected - now < kAwake ? now + kAwake : now;
}

void CallRun::mark_missed(std::uint32_t share) {
    for (Asking& asking : askings_) {
        if (asking.share != share || asking.id == 0 || asking.missed) continue;
        asking.missed = true;
        context_.swarm.links()[asking.worker]->missed(asking.id);
    }
}

bool CallRun::ask_replica(std::uint32_t share) {
    if (progress_[share].times_asked >= kMostAsked) return false;
    std::optional<Quote> quote = best_replica(share);
    if (!quote) return false;
    auto pairs = size32(board_->pairs(share).size());
    double needed = quote->backlog + quote->line.at(pairs);
    if (needed > seconds(started_ + context_.deadline - steady_clock::now())) return false;
    bool local_known = !context_.prefer_remote && context_.local_cost.measured();
    if (local_known && context_.local_cost.line(pairs).at(pairs) < needed) return false;
    return ask(share, quote->worker, quote->epoch);
}

// Of the workers that hold all of a share and were not asked for it, the one that would answer first.
std::optional<Quote> CallRun::best_replica(std::uint32_t share) const {
    std::span<const std::uint32_t> indices = board_->pairs(share);
    auto holds_all = [&](const ReplicaBook::Holder& wanted) {
        return std::all_of(indices.begin(), indices.end(), [&](std::uint32_t index) {
            auto holders = book_->holders(call_.layer, call_.pairs[index].expert);
            return std::find(holders.begin(), holders.end(), wanted) != holders.end();
        });
    };
    auto was_asked = [&](std::uint32_t worker) {
        return std::any_of(askings_.begin(), askings_.end(),
                           [&](const Asking& asking) { return asking.share == share && asking.worker == worker; });
    };
    auto pairs = size32(indices.size());
    std::optional<Quote> best;
    for (const ReplicaBook::Holder& holder : book_->holders(call_.layer)) {
        const auto& link = context_.swarm.links()[holder.worker];
        if (was_asked(holder.worker) || !holds_all(holder) || pairs > link->largest_request(call_)) continue;
        std::optional<Quote> quote = link->quote(pairs, context_.prefer_remote);
        if (!quote || quote->epoch != holder.epoch) continue;
        quote->worker = holder.worker;
        auto time = [pairs](const Quote& of) { return of.backlog + of.line.at(pairs); };
        if (!best || time(*quote) < time(*best)) best = quote;
    }
    return best;
}

// `loose` index the call's pairs; `shares` are whole shares of the board.
Status CallRun::compute_here(std::span<const std::uint32_t> loose, std::span<const std::uint32_t> shares) {
    std::vector<Pair> pairs;
    for (std::uint32_t index : loose)
        pairs.push_back(call_.pairs[index]);
    for (std::uint32_t share : shares) {
        for (std::uint32_t index : board_->pairs(share))
            pairs.push_back(call_.pairs[index]);
    }
    if (pairs.empty()) return {};
    std::vector<float> rows = context_.scratch.take();
    std::size_t needed = pairs.size() * call_.hidden;
    if (rows.size() < needed) rows.resize(needed);
    std::span<float> filled = std::span(rows).first(needed);
    Status status = compute_into(pairs, filled);
    if (status) {
        std::size_t position = loose.size() * call_.hidden;
        scatter_rows(filled.first(position), loose, call_.hidden, call_.out);
        for (std::uint32_t share : shares) {
            std::size_t length = board_->pairs(share).size() * call_.hidden;
            board_->put(share, filled.subspan(position, length));
            position += length;
        }
    }
    context_.scratch.give_back(std::move(rows));
    return status;
}

// Where nothing was computed here for long, one expert is, for the sake of knowing what that costs; the workers are
// being waited for meanwhile.
void CallRun::measure_local() {
    if (context_.prefer_remote || !context_.local_cost.stale()) return;
    Pair pair = call_.pairs[board_->pairs(0).front()];
    std::vector<float> row(call_.hidden);
    // An error here is one only where the row is needed.
    (void)compute_into(std::span(&pair, 1), row);
}

Status CallRun::compute_into(std::span<const Pair> pairs, std::span<float> out) {
    if (pairs.empty()) return {};
    SteadyTime begin = steady_clock::now();
    Status status = local_.compute(call_, pairs, out);
    double took = seconds(steady_clock::now() - begin);
    local_seconds_ += took;
    if (status) context_.local_cost.record(size32(pairs.size()), took);
    return status;
}

// Tells the losers of a hedge that nobody waits for them.
void CallRun::withdraw() {
    for (const Asking& asking : askings_) {
        if (asking.id != 0) context_.swarm.links()[asking.worker]->cancel(asking.id);
    }
}

void CallRun::count(CallTally& tally) const {
    for (std::uint32_t share = 0; share < shares_.size(); ++share) {
        std::size_t pairs = board_->pairs(share).size();
        std::optional<std::uint32_t> winner = board_->winner(share);
        bool first = winner && askings_[*winner].worker == shares_[share].worker;
        if (progress_[share].times_asked > 0 && !first) tally.hedged += pairs;
        if (!winner) continue;
        tally.remote += pairs;
        context_.swarm.links()[askings_[*winner].worker]->used(pairs);
    }
    tally.local = call_.pairs.size() - tally.remote;
    double computing = std::max(local_seconds_, board_->longest_compute());
    tally.seconds_overhead = std::max(0.0, seconds(steady_clock::now() - started_) - computing);
}

}  // namespace

std::vector<float> ScratchPool::take() {
    std::scoped_lock lock(mutex_);
    if (buffers_.empty()) return {};
    std::vector<float> buffer = std::move(buffers_.back());
    buffers_.pop_back();
    return buffer;
}

void ScratchPool::give_back(std::vector<float> buffer) {
    std::scoped_lock lock(mutex_);
    buffers_.push_back(std::move(buffer));
}

void LocalCost::record(std::uint32_t pairs, double time) {
    std::scoped_lock lock(mutex_);
    model_.record(pairs, time, time);
    last_ = steady_clock::now();
}

LatencyModel::Line LocalCost::line(std::uint32_t pairs) const {
    std::scoped_lock lock(mutex_);
    return model_.line(pairs);
}

bool LocalCost::measured() const {
    std::scoped_lock lock(mutex_);
    return model_.measured();
}

bool LocalCost::stale() {
    std::scoped_lock lock(mutex_);
    SteadyTime now = steady_clock::now();
    if (model_.measured() && seconds(now - last_) < kLocalCostLasts) return false;
    last_ = now;
    return true;
}

Status run_call(CallContext& context, const ExpertCall& call, LocalExperts& local, CallTally& tally) {
    if (Status checked = check_call(call); !checked) return checked;
    context.swarm.shapes().learn(call.layer, call.hidden, call.recipe, call.row_encoding);
    return CallRun(context, call, local).run(tally);
}

}  // namespace kvasir
