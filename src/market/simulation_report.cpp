#include <nlohmann/json.hpp>

#include "base/units.h"
#include "market/simulation.h"

namespace kvasir::market {

std::string to_json(const SimulationReport& report, bool with_time) {
    nlohmann::ordered_json json;
    json["nodes"] = report.options.nodes;
    json["days"] = report.options.days;
    json["seed"] = report.options.seed;
    json["outage_minutes"] = report.options.outage_minutes;
    json["target"] = report.options.rules.target;
    json["experts"] = report.cells;
    json["model_gigabytes"] = report.model_gigabytes;
    for (int kind = 0; kind < kNodeKinds; ++kind) {
        const char* of = name(static_cast<NodeKind>(kind));
        json["nodes_of_kind"][of] = report.nodes_of_kind[static_cast<std::size_t>(kind)];
        json["pay_per_gb_hour"][of] = report.pay_per_gb_hour[static_cast<std::size_t>(kind)];
    }
    json["mean_online"] = report.mean_online;
    json["mean_online_gigabytes"] = report.mean_online_gigabytes;
    json["warm_up_minutes"] = report.warm_up_minutes;
    json["covered_share"] = report.covered_share;
    json["uncovered_share"] = report.uncovered_share;
    json["longest_below_minutes"] = report.longest_below_minutes;
    json["enrolments"] = report.enrolments;
    json["refused_wishes"] = report.refused_wishes;
    json["heartbeats"] = report.heartbeats;
    json["moves"] = report.moves;
    json["moves_per_node_day"] = report.moves_per_node_day;
    json["most_moves_in_a_day"] = report.most_moves_in_a_day;
    json["convictions"] = report.convictions;
    json["median_wait_minutes"] = report.median_wait_minutes;
    json["p99_wait_minutes"] = report.p99_wait_minutes;
    json["never_served_share"] = report.never_served_share;
    json["replicas_by_decile"] = report.replicas_by_decile;
    json["fewest_mean_replicas"] = report.fewest_mean_replicas;
    json["gini_by_day"] = report.gini_by_day;
    json["gini_of_steady_by_day"] = report.gini_of_steady_by_day;
    json["paid_micros"] = report.paid;
    json["ledger_entries"] = report.ledger_entries;
    if (with_time) json["cpu_seconds"] = report.cpu_seconds;
    return json.dump(2);
}

std::string table(const SimulationReport& r) {
    auto list = [](const auto& values, int digits) {
        std::string all;
        for (double value : values)
            all += fmt::format(" {:.{}f}", value, digits);
        return all;
    };
    const bool warm = r.warm_up_minutes < r.options.days * 24 * 60;
    std::string text;
    auto line = [&](const char* what, const std::string& value) { text += fmt::format("{:<24}{}\n", what, value); };
    line("nodes",
         fmt::format("{} ({} phones, {} laptops, {} servers), {:.0f} online on the mean, giving {:.0f} GB",
                     human_count(r.options.nodes), human_count(r.nodes_of_kind[0]), human_count(r.nodes_of_kind[1]),
                     human_count(r.nodes_of_kind[2]), r.mean_online, r.mean_online_gigabytes));
    line("experts", fmt::format("{} of {:.1f} GB in all, {} replicas wanted", human_count(r.cells), r.model_gigabytes,
                                r.options.rules.target));
    line("full coverage after", warm ? fmt::format("{} minutes", r.warm_up_minutes) : "never");
    line("at target since then", fmt::format("{:.4f} % of (expert, minute); without any replica {:.4f} %; longest "
                                             "below the target {} minutes",
                                             100 * r.covered_share, 100 * r.uncovered_share, r.longest_below_minutes));
    line("leases", fmt::format("{} begun, {} heartbeats, {} wishes refused because others were faster, {} convictions",
                               human_count(r.enrolments), human_count(r.heartbeats), human_count(r.refused_wishes),
                               human_count(r.convictions)));
    line("moves", fmt::format("{} ({:.3f} a node and day online, at most {} in a day)", human_count(r.moves),
                              r.moves_per_node_day, r.most_moves_in_a_day));
    line("from coming to serving", fmt::format("median {:.0f} minutes, 99th percentile {:.0f}; {:.1f} % of the "
                                               "sessions ended before",
                                               r.median_wait_minutes, r.p99_wait_minutes, 100 * r.never_served_share));
    line("replicas by decile", fmt::format("{}  (of popularity, unpopular first); the fewest of any expert {:.1f}",
                                           list(r.replicas_by_decile, 1), r.fewest_mean_replicas));
    line("pay per GB and hour", fmt::format("phone {:.2f}, laptop {:.2f}, server {:.2f} units", r.pay_per_gb_hour[0],
                                            r.pay_per_gb_hour[1], r.pay_per_gb_hour[2]));
    line("its Gini by day",
         fmt::format("{}; among nodes there all day{}", list(r.gini_by_day, 2), list(r.gini_of_steady_by_day, 2)));
    line("ledger", fmt::format("{} entries, {:.0f} units, chain and balances checked", human_count(r.ledger_entries),
                               static_cast<double>(r.paid) / 1e6));
    line("took", fmt::format("{} of one core", human_seconds(r.cpu_seconds)));
    return text;
}

}  // namespace kvasir::market
