#include "verify/verify.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/files.h"
#include "base/progress.h"
#include "gguf/expert_map.h"
#include "verify/side_by_side.h"
#include "verify/text.h"

namespace kvasir {
namespace {

constexpr std::uint32_t kLongestWindow = 1024;
constexpr std::uint64_t kRecordLimit = 256ULL << 20;  // bytes of one run's expert outputs of one batch

std::uint32_t fitting_batch(const ExpertMap& map, std::uint32_t wanted) {
    const std::uint64_t per_token =
        map.layers.size() * std::max<std::uint64_t>(map.experts_used, 1) * std::max<std::uint64_t>(map.hidden, 1) * 4;
    return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(kRecordLimit / per_token, 1, wanted));
}

std::uint64_t count_rows(const ExpertRecord& record) {
    std::uint64_t rows = 0;
    for (const auto& [layer, values] : record.layers())
        rows += values.rows();
    return rows;
}

// Adds what a decode's logits say of the tokens that follow.
void add_likelihood(std::span<const float> logits, std::size_t vocabulary, std::span<const Token> next,
                    Likelihood& into) {
    for (std::size_t i = 0; i < next.size(); ++i) {
        into.nll += negative_log_likelihood(logits.subspan(i * vocabulary, vocabulary), next[i]);
        ++into.tokens;
    }
}

// What is computed how.
struct Plan {
    std::span<const Token> tokens;
    std::uint32_t window = 0;
    std::uint32_t batch = 0;
    std::size_t exact_tokens = 0;  // of these, the first so many by the exact run too
};

// How many positions are decoded in all.
std::size_t positions(const Plan& plan, const SideBySide& runs) {
    const std::size_t yardsticks = runs.has(Run::repacked) ? 2 : 1;
    return plan.tokens.size() * (runs.has(Run::swarm) ? 3 : 2) + plan.exact_tokens * yardsticks;
}

Status decode(SideBySide& runs, Run run, std::span<const Token> tokens, Progress& progress) {
    if (Status done = runs.decode(run, tokens); !done) return done;
    progress.add(tokens.size());
    return {};
}

struct Batch {
    std::span<const Token> tokens;
    std::span<const Token> next;  // what follows each, as far as known
    std::size_t at = 0;           // the first one's position
};

// Computes a batch, which stock and local have just computed, by what they are held against, and compares.
Status run_yardsticks(SideBySide& runs, const Batch& batch, VerifyPass& pass, VerifyReport& report,
                      Progress& progress) {
    if (Status done = decode(runs, Run::exact, batch.tokens, progress); !done) return done;
    runs.compare(Run::exact, Run::stock, batch.at, *pass.stock_to_exact);
    runs.compare(Run::exact, Run::local, batch.at, *pass.local_to_exact);
    if (runs.has(Run::repacked)) {
        if (Status done = decode(runs, Run::repacked, batch.tokens, progress); !done) return done;
        runs.compare(Run::stock, Run::repacked, batch.at, *pass.repacked_to_stock);
    }
    const std::size_t vocabulary = runs.model().vocabulary();
    for (const auto& [run, likelihood] : {std::pair{Run::stock, &report.stock},
                                          {Run::local, &report.local},
                                          {Run::exact, &report.exact},
                                          {Run::repacked, &report.repacked}}) {
        if (runs.has(run)) add_likelihood(runs.logits(run), vocabulary, batch.next, *likelihood);
    }
    return {};
}

// Computes the tokens in windows, each in batches, by every run, and compares.
Status run_pass(SideBySide& runs, const Plan& plan, VerifyPass& pass, VerifyReport& report, Progress& progress) {
    runs.clear();
    for (std::size_t at = 0; at < plan.tokens.size();) {
        const std::size_t in_window = at % plan.window;
        if (in_window == 0) runs.clear();
        const std::size_t count = std::min({std::size_t{plan.batch}, plan.window - in_window, plan.tokens.size() - at});
        const std::span<const Token> batch = plan.tokens.subspan(at, count);
        for (const Run run : {Run::stock, Run::local, Run::swarm}) {
            if (!runs.has(run)) continue;
            if (Status done = decode(runs, run, batch, progress); !done) return done;
        }
        runs.compare(Run::stock, Run::local, at, pass.local_to_stock);
        if (runs.has(Run::swarm)) {
            runs.compare(Run::stock, Run::swarm, at, *pass.swarm_to_stock);
            runs.compare(Run::local, Run::swarm, at, *pass.swarm_to_local);
            report.pairs += count_rows(runs.experts(Run::swarm));
        }
        if (at + count <= plan.exact_tokens) {
            const std::size_t known = std::min(count, plan.tokens.size() - at - 1);
            const std::span<const Token> next = plan.tokens.subspan(at + 1, known);
            if (Status done = run_yardsticks(runs, {batch, next, at}, pass, report, progress); !done) return done;
        }
        at += count;
    }
    return {};
}

VerifyPass make_pass(std::string name, const SideBySide& runs, bool exact) {
    VerifyPass pass;
    pass.name = std::move(name);
    if (runs.has(Run::swarm)) {
        pass.swarm_to_stock.emplace();
        pass.swarm_to_local.emplace();
    }
    if (exact) {
        pass.stock_to_exact.emplace();
        pass.local_to_exact.emplace();
    }
    if (exact && runs.has(Run::repacked)) pass.repacked_to_stock.emplace();
    return pass;
}

// What the dispatcher did since `before`.
SwarmStats since(const SwarmStats& before, SwarmStats now) {
    now.calls -= before.calls;
    now.pairs_local -= before.pairs_local;
    now.pairs_remote -= before.pairs_remote;
    now.pairs_hedged -= before.pairs_hedged;
    now.bytes_sent -= before.bytes_sent;
    now.bytes_received -= before.bytes_received;
    now.seconds_overhead -= before.seconds_overhead;
    for (std::size_t i = 0; i < std::min(now.workers.size(), before.workers.size()); ++i) {
        now.workers[i].pairs -= before.workers[i].pairs;
        now.workers[i].failures -= before.workers[i].failures;
    }
    return now;
}

Status check_not_vacuous(const VerifyReport& report) {
    for (const VerifyPass& pass : report.passes) {
        if (pass.local_to_stock.positions_not_finite == pass.local_to_stock.positions) {
            return fail(
                ErrorKind::invalid,
                "stock llama.cpp gives no finite logits for this model and text: comparing them proves nothing");
        }
        if (pass.local_to_stock.rows == 0) {
            return fail(ErrorKind::unsupported,
                        "the backend recognised no expert group of this model: its experts were left to llama.cpp and "
                        "nothing was compared");
        }
    }
    if (report.swarm && report.swarm->pairs_remote == 0) {
        return fail(ErrorKind::unavailable,
                    "no pair was computed by a worker, so the comparison would prove nothing: see that the workers "
                    "hold experts of this model and stay connected");
    }
    return {};
}

std::uint64_t total_bytes(const GgufModel& model) {
    std::uint64_t bytes = 0;
    for (const ModelFile& file : model.files())
        bytes += file.size;
    return bytes;
}

Status check_options(const VerifyOptions& options) {
    if (options.tokens == 0 || options.batch == 0 || options.threads < 1) {
        return fail(ErrorKind::usage, "tokens, batch and threads must be at least 1");
    }
    return {};
}

// In none of the comparisons that are promised to be equal.
bool promised(const VerifyReport& report, const std::function<bool(const Comparison&)>& differs) {
    const bool like_stock = report.arithmetic == Arithmetic::ggml_cpu;
    return std::ranges::none_of(report.passes, [&](const VerifyPass& pass) {
        return (like_stock && differs(pass.local_to_stock)) ||
               (like_stock && pass.swarm_to_stock && differs(*pass.swarm_to_stock)) ||
               (pass.swarm_to_local && differs(*pass.swarm_to_local));
    });
}

}  // namespace

double Likelihood::perplexity() const {
    return tokens == 0 ? 0 : std::exp(nll / static_cast<double>(tokens));
}

bool VerifyReport::logits_identical() const {
    return promised(*this, [](const Comparison& comparison) { return comparison.positions_different > 0; });
}

bool VerifyReport::expert_outputs_identical() const {
    return promised(*this, [](const Comparison& comparison) { return comparison.rows_different > 0; });
}

Result<VerifyReport> verify(const VerifyOptions& options) {
    if (Status ok = check_options(options); !ok) return fail(ok.error());
    Result<GgufModel> header = GgufModel::open(options.model);
    if (!header) return fail(header.error());
    Result<ExpertMap> map = map_experts(*header);
    if (!map) return fail(map.error());
    if (map->layers.empty()) {
        return fail(ErrorKind::unsupported, "{} has no routed experts: there is nothing to shard and nothing to verify",
                    options.model.string());
    }

    const std::uint32_t batch = fitting_batch(*map, options.batch);
    const std::uint64_t trained = header->hyperparameter("context_length").value_or(kLongestWindow);
    const auto window = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(trained, 1, kLongestWindow));
    SideBySideOptions side_options;
    side_options.model = header->files().front().path;  // llama.cpp wants the first of a split model's files
    side_options.threads = options.threads;
    side_options.context = window;
    side_options.batch = std::min(batch, window);
    side_options.arithmetic = options.arithmetic;
    side_options.exact = options.arithmetic != Arithmetic::ggml_cpu && options.exact_tokens > 0;
    side_options.repacked = side_options.exact && total_bytes(*header) <= options.repack_limit;
    side_options.dispatcher = options.dispatcher;
    side_options.manifest = options.manifest;
    Result<std::unique_ptr<SideBySide>> runs = SideBySide::create(side_options);
    if (!runs) return fail(runs.error());
    Result<VerifyText> text = verify_text((*runs)->model(), options.model, options.text, options.tokens);
    if (!text) return fail(text.error());

    const bool swarm = options.dispatcher != nullptr;
    const std::span<const Token> tokens = text->tokens;
    const std::span<const Token> single = tokens.first(std::min<std::size_t>(options.single_tokens, tokens.size()));
    VerifyReport report;
    report.architecture = map->architecture;
    report.model_name = map->name;
    report.text = text->source;
    report.expert_layers = static_cast<std::uint32_t>(map->layers.size());
    report.experts_used = map->experts_used;
    report.tokens = tokens.size();
    report.window = window;
    report.threads = options.threads;
    report.arithmetic = options.arithmetic;
    const Plan batches{tokens, window, std::min(batch, window),
                       side_options.exact ? std::min<std::size_t>(options.exact_tokens, tokens.size()) : 0};
    const Plan one_by_one{single, window, 1, 0};

    if (options.on_begin) options.on_begin();
    const SwarmStats before = swarm ? options.dispatcher->stats() : SwarmStats{};
    Progress progress("verify", positions(batches, **runs) + positions(one_by_one, **runs), ProgressUnit::count,
                      options.quiet);
    report.passes.push_back(make_pass(fmt::format("in batches of {}", batches.batch), **runs, side_options.exact));
    Status done = run_pass(**runs, batches, report.passes.back(), report, progress);
    if (done && !single.empty()) {
        report.passes.push_back(make_pass("token by token", **runs, false));
        done = run_pass(**runs, one_by_one, report.passes.back(), report, progress);
    }
    if (!done) return fail(done.error());
    progress.finish();
    if (swarm) report.swarm = since(before, options.dispatcher->stats());
    report.seconds_stock = (*runs)->seconds(Run::stock);
    report.seconds_local = (*runs)->seconds(Run::local);
    report.seconds_swarm = swarm ? (*runs)->seconds(Run::swarm) : 0;
    if (Status ok = check_not_vacuous(report); !ok) return fail(ok.error());
    return report;
}

}  // namespace kvasir
