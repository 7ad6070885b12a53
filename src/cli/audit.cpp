// kvasir audit: what audits of workers' answers found, and what they find.
#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "backbone/audit_policy.h"
#include "backbone/evidence_check.h"
#include "cli/command.h"

namespace kvasir::cli {
namespace {

constexpr const char* kCheckFooter =
    "Evidence holds when three things do: the worker's key signed this answer to this question, the model's weights\n"
    "are the published ones, and computing the question again on them gives another answer. Nothing else in the file\n"
    "is believed. In portable arithmetic every machine can check it; in ggml-cpu only one with the same kernels.\n"
    "\n"
    "Example:\n"
    "  kvasir audit check 20261201T101500Z-layer-3-expert-17-0a1b2c3d4e5f.json --model model.gguf\n"
    "Exit codes: 0 it holds, 1 it does not, 3 it cannot be checked, 4 a file is missing.";

constexpr const char* kOddsFooter =
    "A liar gives wrong answers in a fraction of its rows from its first day on. The formula is in the header of the\n"
    "code (src/backbone/audit_policy.h); beside it stands what happened to so many simulated liars.\n"
    "\n"
    "Example:\n"
    "  kvasir audit odds --liars 10000";

struct CheckFlags {
    std::filesystem::path file;
    std::filesystem::path model;
    std::filesystem::path manifest;
    bool json = false;
};

struct OddsFlags {
    std::size_t liars = 2000;
    std::size_t pairs = 8;
    std::uint64_t seed = 1;
    bool json = false;
};

Result<int> check(const CheckFlags& flags) {
    Result<Evidence> evidence = load_evidence(flags.file);
    if (!evidence) return fail(evidence.error());
    Result<EvidenceVerdict> verdict = check_evidence(*evidence, flags.model, flags.manifest);
    if (!verdict && verdict.error().kind != ErrorKind::mismatch) return fail(verdict.error());
    if (flags.json) {
        nlohmann::json json = {{"holds", verdict.has_value()},
                               {"model_id", to_hex(evidence->context.model_id)},
                               {"arithmetic", evidence->context.arithmetic},
                               {"layer", evidence->terms.layer},
                               {"expert", evidence->terms.expert}};
        if (verdict) {
            json["worker"] = to_hex(verdict->worker);
            json["wrong_values"] = verdict->wrong;
            json["values"] = evidence->terms.hidden;
        } else {
            json["reason"] = verdict.error().message;
        }
        fmt::print("{}\n", json.dump(2));
        return verdict ? 0 : exit_code(ErrorKind::mismatch);
    }
    if (!verdict) return fail(verdict.error().within("this evidence does not hold"));
    fmt::print("The evidence holds: worker {}\nsigned a wrong answer for backbone {}.\n", to_hex(verdict->worker),
               to_hex(evidence->context.backbone));
    fmt::print("  model {}\n  layer {}, expert {}: {} of {} values are not what the model's weights give in {}\n",
               to_hex(evidence->context.model_id), evidence->terms.layer, evidence->terms.expert, verdict->wrong,
               evidence->terms.hidden, evidence->context.arithmetic);
    return 0;
}

Result<int> odds(const OddsFlags& flags) {
    const AuditBudget budget;
    nlohmann::json rows = nlohmann::json::array();
    if (!flags.json) {
        fmt::print("A new worker has {:.0f} % of its pairs audited, a long-proven one {:.2f} %.\n\n",
                   budget.first_share * 100, budget.last_share * 100);
        fmt::print("{:>10}  {:>26}  {:>17}  {:>21}  {:>22}\n", "lies in", "rows until caught: formula",
                   "mean simulated", "of these wrong (mean)", "9 of 10 are caught by");
    }
    for (double f : std::array{1.0, 0.5, 0.1, 0.03, 0.01}) {
        const double formula = rows_until_caught(budget, f);
        const LiarTrial trial = try_liars(budget, f, flags.pairs, flags.liars, flags.seed);
        if (flags.json) {
            rows.push_back({{"lies", f},
                            {"rows_formula", formula},
                            {"rows_mean", trial.rows},
                            {"wrong_mean", trial.wrong},
                            {"rows_90", trial.rows_90}});
        } else {
            fmt::print("{:>8.0f} %  {:>26.0f}  {:>17.0f}  {:>21.1f}  {:>22.0f}\n", f * 100, formula, trial.rows,
                       trial.wrong, trial.rows_90);
        }
    }
    if (flags.json) fmt::print("{}\n", rows.dump(2));
    return 0;
}

void add_check(CLI::App& audit, Action& action) {
    CLI::App* command = audit.add_subcommand("check", "Check evidence of a wrong answer against the model");
    auto flags = std::make_shared<CheckFlags>();
    command->add_option("FILE", flags->file, "The evidence that kvasir serve kept")->required();
    command->add_option("--model", flags->model, "The GGUF model (any split of it)")->required();
    command->add_option("--manifest", flags->manifest, "The model's manifest (default: beside the model)");
    command->add_flag("--json", flags->json, "Print the verdict as JSON");
    command->footer(kCheckFooter);
    command->callback([flags, &action] { action = [flags] { return check(*flags); }; });
}

void add_odds(CLI::App& audit, Action& action) {
    CLI::App* command = audit.add_subcommand("odds", "How soon audits catch a worker that lies");
    auto flags = std::make_shared<OddsFlags>();
    command->add_option("--liars", flags->liars, "How many are simulated")
        ->capture_default_str()
        ->check(CLI::Range(std::size_t{1}, std::size_t{1'000'000}));
    command->add_option("--pairs", flags->pairs, "Pairs of a request")
        ->capture_default_str()
        ->check(CLI::Range(std::size_t{1}, std::size_t{4096}));
    command->add_option("--seed", flags->seed, "Of the simulation")->capture_default_str();
    command->add_flag("--json", flags->json, "Print the table as JSON");
    command->footer(kOddsFooter);
    command->callback([flags, &action] { action = [flags] { return odds(*flags); }; });
}

}  // namespace

void add_audit(CLI::App& app, Action& action) {
    CLI::App* command = app.add_subcommand("audit", "Check evidence of wrong answers; how soon liars are caught");
    command->require_subcommand(1);
    add_check(*command, action);
    add_odds(*command, action);
}

}  // namespace kvasir::cli
