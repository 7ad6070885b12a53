#include "backbone/call_plan.h"

#include <algorithm>
#include <numeric>

namespace kvasir {
namespace {

// Sending one more frame costs the caller about this much, so a second worker must be worth it.
constexpr double kSendSeconds = 15e-6;
// A worker that is as fast as computing here is preferred: this machine has other things to do.
constexpr double kLocalHandicap = 1.25;
// Where nothing is measured yet, equal numbers of pairs are equal work.
constexpr double kLeastPerPair = 1e-9;

struct Group {
    std::uint32_t expert = 0;
    std::span<const std::uint32_t> pairs;
};

// Somebody to compute, and what was given to it so far.
struct Taker {
    LatencyModel::Line line;
    double backlog = 0;
    std::vector<std::uint32_t> pairs;

    double done_at(std::size_t more, std::size_t frames) const {
        double count = static_cast<double>(pairs.size() + more);
        double start = pairs.empty() ? static_cast<double>(frames) * kSendSeconds : 0.0;
        return start + backlog + line.fixed + std::max(line.per_pair, kLeastPerPair) * count;
    }
};

std::vector<std::uint32_t> sorted_by_expert(std::span<const Pair> pairs) {
    std::vector<std::uint32_t> order(pairs.size());
    std::iota(order.begin(), order.end(), 0U);
    std::stable_sort(order.begin(), order.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return pairs[a].expert < pairs[b].expert; });
    return order;
}

std::vector<Group> group_by_expert(std::span<const Pair> pairs, std::span<const std::uint32_t> order) {
    std::vector<Group> groups;
    for (std::size_t begin = 0; begin < order.size();) {
        std::size_t end = begin + 1;
        while (end < order.size() && pairs[order[end]].expert == pairs[order[begin]].expert)
            ++end;
        groups.push_back({pairs[order[begin]].expert, order.subspan(begin, end - begin)});
        begin = end;
    }
    std::stable_sort(groups.begin(), groups.end(),
                     [](const Group& a, const Group& b) { return a.pairs.size() > b.pairs.size(); });
    return groups;
}

}  // namespace

CallPlan plan_call(const PlanRequest& request, const ReplicaBook& book) {
    std::vector<std::uint32_t> order = sorted_by_expert(request.pairs);
    std::vector<Taker> takers;
    for (const Quote& quote : request.quotes)
        takers.push_back({quote.line, quote.backlog, {}});
    Taker local{request.local.value_or(LatencyModel::Line{}), 0, {}};
    std::size_t frames = 0;

    for (const Group& group : group_by_expert(request.pairs, order)) {
        Taker* best = nullptr;
        double best_time = 0;
        auto consider = [&](Taker& taker, double time) {
            if (best != nullptr && time >= best_time) return;
            best = &taker;
            best_time = time;
        };
        for (const ReplicaBook::Holder& holder : book.holders(request.layer, group.expert)) {
            auto quote = std::lower_bound(request.quotes.begin(), request.quotes.end(), holder.worker,
                                          [](const Quote& a, std::uint32_t worker) { return a.worker < worker; });
            if (quote == request.quotes.end() || quote->worker != holder.worker) continue;
            if (quote->epoch != holder.epoch) continue;
            Taker& taker = takers[static_cast<std::size_t>(quote - request.quotes.begin())];
            double done = taker.done_at(group.pairs.size(), frames);
            if (done <= request.longest) consider(taker, done);
        }
        // Computing here begins when all frames are sent.
        if (request.local) consider(local, kLocalHandicap * local.done_at(group.pairs.size(), 0));
        if (best == nullptr) best = &local;
        if (best != &local && best->pairs.empty()) ++frames;
        best->pairs.insert(best->pairs.end(), group.pairs.begin(), group.pairs.end());
    }

    CallPlan plan;
    plan.local = std::move(local.pairs);
    std::sort(plan.local.begin(), plan.local.end());
    for (std::size_t i = 0; i < takers.size(); ++i) {
        if (takers[i].pairs.empty()) continue;
        std::sort(takers[i].pairs.begin(), takers[i].pairs.end());
        plan.remote.push_back({request.quotes[i].worker, request.quotes[i].epoch, std::move(takers[i].pairs)});
    }
    return plan;
}

}  // namespace kvasir
