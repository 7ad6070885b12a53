#include <fmt/format.h>

#include <memory>

#include "cli/command.h"
#include "market/simulation.h"

namespace kvasir::cli {
namespace {

constexpr const char* kFooter =
    "The hub's own code with virtual nodes in virtual time; one seed always gives the same result.\n"
    "Examples:\n"
    "  kvasir simulate market                                  10,000 nodes, a week\n"
    "  kvasir simulate market --nodes 300 --days 3 --target 2  will 300 volunteers carry it?\n"
    "  kvasir simulate market --outage 60                      the hub is away for an hour on day 1";

struct Flags {
    market::SimulationOptions options;
    bool json = false;
};

Result<int> run(const Flags& flags) {
    Result<market::SimulationReport> report = market::simulate(flags.options);
    if (!report) return fail(report.error());
    fmt::print("{}", flags.json ? market::to_json(*report) + "\n" : market::table(*report));
    return 0;
}

}  // namespace

void add_simulate(CLI::App& app, Action& action) {
    CLI::App* simulate = app.add_subcommand("simulate", "Try the hub's market on virtual nodes");
    simulate->require_subcommand(1);
    CLI::App* command = simulate->add_subcommand("market", "Who holds which experts, and what is it paid?");
    command->footer(kFooter);
    auto flags = std::make_shared<Flags>();
    market::SimulationOptions& options = flags->options;
    command->add_option("--nodes", options.nodes, "Workers: phones, laptops and servers, 6:3:1")
        ->check(CLI::Range(1, 200000))
        ->capture_default_str();
    command->add_option("--days", options.days, "Virtual days")->check(CLI::Range(1, 365))->capture_default_str();
    command->add_option("--seed", options.seed, "Another seed, another course")->capture_default_str();
    command->add_option("--target", options.rules.target, "Replicas wanted of every expert")
        ->check(CLI::Range(1, 64))
        ->capture_default_str();
    command->add_option("--layers", options.layers, "Layers with routed experts")
        ->check(CLI::Range(1, 1000))
        ->capture_default_str();
    command->add_option("--experts", options.experts, "Experts per layer")
        ->check(CLI::Range(1, 1024))
        ->capture_default_str();
    command->add_option("--used", options.used, "Experts per token")->check(CLI::Range(1, 64))->capture_default_str();
    command->add_option("--expert-bytes", options.expert_bytes, "Bytes of one expert")
        ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 40))
        ->capture_default_str();
    command->add_option("--tokens-per-second", options.tokens_per_s, "Asked by all backbones together")
        ->check(CLI::Range(0.0, 1e6))
        ->capture_default_str();
    command->add_option("--backbones", options.backbones, "Backbones")
        ->check(CLI::Range(1, 200))
        ->capture_default_str();
    command->add_option("--outage", options.outage_minutes, "Minutes the hub is away, from noon of day 1 on")
        ->check(CLI::Range(0, 1440))
        ->capture_default_str();
    command->add_flag("--json", flags->json, "One JSON object");
    command->callback([&action, flags] { action = [flags] { return run(*flags); }; });
}

}  // namespace kvasir::cli
