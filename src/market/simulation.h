// The real market with virtual nodes, in virtual time: `kvasir simulate market`, and a test.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "market/population.h"

namespace kvasir::market {

struct SimulationOptions {
    std::uint32_t nodes = 10'000;
    std::uint32_t days = 7;
    std::uint64_t seed = 1;
    // The model's geometry; by default Qwen3.5-122B-A10B's, 49 x 256 experts of 5.3 MB.
    std::uint32_t layers = 49;
    std::uint32_t experts = 256;
    std::uint32_t used = 8;
    std::uint64_t expert_bytes = 5'308'416;
    double tokens_per_s = 100;  // on the mean over a day
    std::uint32_t backbones = 8;
    // The hub is away for so many minutes from noon of day 1 on, and then starts again from what is stored.
    std::uint32_t outage_minutes = 0;
    Rules rules;
};

struct SimulationReport {
    SimulationOptions options;
    std::uint64_t cells = 0;
    double model_gigabytes = 0;
    std::array<std::uint32_t, kNodeKinds> nodes_of_kind{};
    double mean_online = 0;
    double mean_online_gigabytes = 0;  // given by those online

    // Coverage as it was, whatever the hub believed: nodes online, with the weights, proved. Counted from the minute
    // all experts first had their target.
    std::uint32_t warm_up_minutes = 0;  // the whole time if that never was
    double covered_share = 0;           // of (expert, minute)
    double uncovered_share = 0;         // without any replica
    std::uint32_t longest_below_minutes = 0;

    std::uint64_t enrolments = 0;  // leases begun
    std::uint64_t refused_wishes = 0;
    std::uint64_t heartbeats = 0;
    std::uint64_t moves = 0;                // pieces given up for others while online
    double moves_per_node_day = 0;          // per day online
    std::uint32_t most_moves_in_a_day = 0;  // of one node
    std::uint64_t convictions = 0;

    double median_wait_minutes = 0;  // from coming to serving
    double p99_wait_minutes = 0;
    double never_served_share = 0;  // of honest sessions that ended before they served

    // Mean replicas over time of the experts of a popularity decile, unpopular first.
    std::array<double, 10> replicas_by_decile{};
    double fewest_mean_replicas = 0;  // of any expert

    // Of pay per GB and hour served: over nodes that served an hour that day, and over those that served 20.
    std::vector<double> gini_by_day;
    std::vector<double> gini_of_steady_by_day;
    std::array<double, kNodeKinds> pay_per_gb_hour{};  // units, of the whole time
    Micros paid = 0;
    std::uint64_t ledger_entries = 0;

    double cpu_seconds = 0;
};

Result<SimulationReport> simulate(const SimulationOptions& options);

// Without the time it took, so that two runs with one seed compare equal.
std::string to_json(const SimulationReport& report, bool with_time = true);
std::string table(const SimulationReport& report);

// 0: everybody has the same; 1: one has everything. Values are not negative.
double gini(std::vector<double> values);

}  // namespace kvasir::market
