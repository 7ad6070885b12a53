#include "demo/demo.h"

#include <fmt/format.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backbone/open_backbone.h"
#include "base/files.h"
#include "base/interrupt.h"
#include "base/temp_directory.h"
#include "base/units.h"
#include "demo/fleet.h"
#include "demo/sampler.h"
#include "verify/side_by_side.h"
#include "verify/text_table.h"

namespace kvasir {
namespace {

using std::chrono::steady_clock;

constexpr const char* kPrompt = "Once upon a time there was a king who had three daughters";
constexpr std::chrono::seconds kSwarmPatience{30};
constexpr std::size_t kVictim = 1;  // the worker that is killed

// What was written on this machine alone.
struct Monolith {
    std::vector<Token> prompt;
    std::vector<Token> story;
    double tokens_per_second = 0;
};

struct SwarmRun {
    std::vector<Token> story;
    Comparison comparison;                 // with the monolith
    std::optional<Comparison> from_stock;  // in portable: of the monolith, with stock llama.cpp
    SwarmStats stats;
    double tokens_per_second = 0;
    std::size_t killed_at = 0;  // token; 0: never
};

// Kills a worker when a layer in the middle of a token in the middle of the story has been computed.
class Assassin {
  public:
    Assassin(ChildProcess& victim, std::size_t token, std::uint32_t layer)
        : victim_(victim), token_(token), layer_(layer) {}

    void at_token(std::size_t token) { now_ = token; }
    void at_layer(std::uint32_t layer) {
        if (done_ || now_ != token_ || layer != layer_) return;
        victim_.signal(SIGKILL);
        done_ = true;
    }
    std::size_t killed_at() const { return done_ ? token_ : 0; }
    bool struck_in(std::size_t token) const { return done_ && token == token_; }

  private:
    ChildProcess& victim_;
    std::size_t token_;
    std::uint32_t layer_;
    std::size_t now_ = 0;
    bool done_ = false;
};

struct Setup {
    GgufModel model;
    ExpertMap map;
    Manifest manifest;
    std::vector<FleetWorker> fleet;
    Backbone backbone;
    std::unique_ptr<SideBySide> runs;
    std::optional<Assassin> assassin;
};

double seconds_since(steady_clock::time_point start) {
    return std::chrono::duration<double>(steady_clock::now() - start).count();
}

void stage(int number, const std::string& text) {
    fmt::print("{}/5 {}\n", number, text);
    std::fflush(stdout);
}

void show(const std::string& text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
}

tl::unexpected<Error> stopped() {
    return fail(ErrorKind::unavailable, "interrupted");
}

Status publish_stage(const std::filesystem::path& manifest_file, Setup& setup) {
    PublishOptions options;
    options.threads = 1;
    options.cancel = &interruption();
    Result<PublishReport> report = publish(setup.model, setup.map, options);
    if (!report) return fail(report.error());
    setup.manifest = std::move(report->manifest);
    if (Status written = write_text_file(manifest_file, to_json(setup.manifest)); !written) return written;
    stage(1, fmt::format("publish   {}: {} experts in {} layers, {} hashed; model id {}…", setup.map.name,
                         human_count(setup.map.expert_count()), setup.map.layers.size(),
                         human_bytes(report->hashed_bytes), to_hex(setup.manifest.model_id()).substr(0, 12)));
    return {};
}

Status slice_stage(const std::filesystem::path& directory, Setup& setup) {
    Result<std::vector<FleetWorker>> fleet = cut_fleet(setup.model, setup.map, setup.manifest, directory);
    if (!fleet) return fail(fleet.error());
    setup.fleet = std::move(*fleet);
    stage(2, "slice     three overlapping pieces, each expert in two of them, checked against the manifest:");
    for (std::size_t i = 0; i < setup.fleet.size(); ++i) {
        fmt::print("              slice {}: {}\n", i + 1, describe(setup.fleet[i].pieces));
    }
    return {};
}

Status worker_stage(const DemoOptions& options, const std::filesystem::path& directory,
                    const std::filesystem::path& manifest_file, Setup& setup) {
    const std::filesystem::path key = directory / "backbone.pem";
    Result<Identity> identity = Identity::load_or_create(key);
    if (!identity) return fail(identity.error());
    if (Status started = start_fleet(setup.fleet, options.program, identity->id(), directory); !started) return started;
    BackboneOptions backbone;
    backbone.model = options.model;
    backbone.manifest = manifest_file;
    backbone.identity = key;
    backbone.arithmetic = options.arithmetic;
    backbone.prefer_workers = true;  // to show the swarm: on one machine it can only cost
    for (const FleetWorker& worker : setup.fleet)
        backbone.workers.push_back(worker.endpoint);
    Result<Backbone> opened = open_backbone(backbone);
    if (!opened) return fail(opened.error());
    setup.backbone = std::move(*opened);
    Dispatcher& dispatcher = *setup.backbone.config.dispatcher;
    if (!dispatcher.wait_for_workers(kSwarmPatience)) {
        std::string states;
        for (const WorkerStatus& worker : dispatcher.stats().workers)
            states += "\n  " + describe_worker(worker);
        return fail(ErrorKind::unavailable, "the workers don't serve:{}", states);
    }
    stage(3,
          fmt::format("workers   three processes serve them on loopback: TLS 1.3, each end pinned to the other's key"));
    return {};
}

// Whose bits the swarm's must be.
Run monolith_run(const DemoOptions& options) {
    return options.arithmetic == Arithmetic::ggml_cpu ? Run::stock : Run::local;
}

std::string monolith_name(const DemoOptions& options) {
    return options.arithmetic == Arithmetic::ggml_cpu ? "stock llama.cpp" : "the backbone";
}

Status open_runs(const DemoOptions& options, Setup& setup) {
    SideBySideOptions side;
    side.model = options.model;
    side.threads = options.threads;
    side.context = side.batch + options.tokens;  // the prompt is shorter than a batch
    side.arithmetic = options.arithmetic;
    side.local = monolith_run(options) == Run::local;
    side.dispatcher = setup.backbone.config.dispatcher;
    side.manifest = setup.backbone.config.manifest;
    side.on_swarm_layer = [&setup](std::uint32_t layer) {
        if (setup.assassin) setup.assassin->at_layer(layer);
    };
    Result<std::unique_ptr<SideBySide>> created = SideBySide::create(side);
    if (!created) return fail(created.error());
    setup.runs = std::move(*created);
    return {};
}

// The story, written on this machine alone.
Result<Monolith> monolith_stage(const DemoOptions& options, Setup& setup) {
    SideBySide& runs = *setup.runs;
    const Run run = monolith_run(options);
    Monolith monolith;
    Result<std::vector<Token>> prompt = runs.model().tokenize(kPrompt);
    if (!prompt) return fail(prompt.error());
    monolith.prompt = std::move(*prompt);
    if (Status done = runs.decode(run, monolith.prompt); !done) return fail(done.error());
    const double prompt_seconds = runs.seconds(run);
    StorySampler sampler(options.seed);
    while (monolith.story.size() < options.tokens) {
        if (interrupted()) return stopped();
        const Token token = sampler.next(runs.logits(run).last(runs.model().vocabulary()));
        if (runs.model().ends_generation(token)) break;
        monolith.story.push_back(token);
        if (Status done = runs.decode(run, std::span(&token, 1)); !done) return fail(done.error());
    }
    if (monolith.story.empty()) return fail(ErrorKind::unsupported, "the model ends its story before it begins");
    monolith.tokens_per_second = static_cast<double>(monolith.story.size()) / (runs.seconds(run) - prompt_seconds);
    stage(4, fmt::format("monolith  {}, alone, has written a story of {} tokens; the swarm must write it again",
                         monolith_name(options), monolith.story.size()));
    runs.clear();
    return monolith;
}

// Decodes by the swarm and by this machine alone, and compares.
Status step(const DemoOptions& options, SideBySide& runs, std::span<const Token> tokens, std::uint64_t position,
            SwarmRun& into) {
    if (interrupted()) {
        show("\n");  // in the middle of the story
        return stopped();
    }
    for (const Run run : {Run::swarm, Run::stock, Run::local}) {
        if (!runs.has(run)) continue;
        if (Status done = runs.decode(run, tokens); !done) return done;
    }
    runs.compare(monolith_run(options), Run::swarm, position, into.comparison);
    if (into.from_stock) runs.compare(Run::stock, Run::local, position, *into.from_stock);
    return {};
}

Result<SwarmRun> swarm_stage(const DemoOptions& options, const Monolith& monolith, Setup& setup) {
    const std::uint32_t middle = setup.map.layers[(setup.map.layers.size() - 1) / 2].layer;
    setup.assassin.emplace(*setup.fleet[kVictim].process, monolith.story.size() / 2 + 1, middle);
    SideBySide& runs = *setup.runs;
    stage(5, fmt::format("swarm     the same, its experts on the workers, compared bit by bit as it goes:\n"));
    show(std::string("    ") + kPrompt);
    SwarmRun result;
    if (monolith_run(options) != Run::stock) result.from_stock.emplace();
    if (Status done = step(options, runs, monolith.prompt, 0, result); !done) return fail(done.error());
    const double prompt_seconds = runs.seconds(Run::swarm);
    StorySampler sampler(options.seed);
    while (result.story.size() < monolith.story.size()) {
        const std::size_t vocabulary = runs.model().vocabulary();
        const Token token = sampler.next(runs.logits(Run::swarm).last(vocabulary));
        if (runs.model().ends_generation(token)) break;
        result.story.push_back(token);
        show(runs.model().piece(token));
        setup.assassin->at_token(result.story.size());
        const std::uint64_t position = monolith.prompt.size() + result.story.size() - 1;
        if (Status done = step(options, runs, std::span(&token, 1), position, result); !done) return fail(done.error());
        if (setup.assassin->struck_in(result.story.size())) show(fmt::format(" [worker {} is killed]", kVictim + 1));
    }
    show("\n\n");
    result.tokens_per_second = static_cast<double>(result.story.size()) / (runs.seconds(Run::swarm) - prompt_seconds);
    result.stats = setup.backbone.config.dispatcher->stats();
    result.killed_at = setup.assassin->killed_at();
    return result;
}

std::string share(std::uint64_t part, std::uint64_t whole) {
    return fmt::format("{:.1f} %", whole == 0 ? 0.0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

std::string placement(const Setup& setup, const SwarmRun& run) {
    std::uint64_t all = run.stats.pairs_local;
    for (const WorkerStatus& worker : run.stats.workers)
        all += worker.pairs;
    std::vector<std::vector<std::string>> rows{{"expert pairs computed by", "pairs", "share", "holds"}};
    for (std::size_t i = 0; i < run.stats.workers.size() && i < setup.fleet.size(); ++i) {
        const std::uint64_t pairs = run.stats.workers[i].pairs;
        const bool killed = i == kVictim && run.killed_at > 0;
        rows.push_back(
            {fmt::format("worker {}{}", i + 1, killed ? fmt::format(" (killed in token {})", run.killed_at) : ""),
             human_count(pairs), share(pairs, all), describe(setup.fleet[i].pieces)});
    }
    rows.push_back(
        {"this process", human_count(run.stats.pairs_local), share(run.stats.pairs_local, all), "everything"});
    rows.push_back(
        {"asked of one, answered by another", human_count(run.stats.pairs_hedged), share(run.stats.pairs_hedged, all)});
    return text_table(rows);
}

std::string verdict(const ExpertMap& map, const Comparison& comparison) {
    const std::string layers = fmt::format("all {} layers", map.layers.size() - comparison.layers_unseen.size());
    std::string text;
    text += comparison.positions_different == 0
                ? fmt::format("  logits identical: yes ({} tokens, {})\n", human_count(comparison.positions), layers)
                : fmt::format("  logits identical: NO ({} of {} tokens differ)\n",
                              human_count(comparison.positions_different), human_count(comparison.positions));
    text +=
        comparison.rows_different == 0
            ? fmt::format("  expert outputs identical: yes ({} rows, byte for byte)\n", human_count(comparison.rows))
            : fmt::format("  expert outputs identical: NO ({} of {} rows differ)\n",
                          human_count(comparison.rows_different), human_count(comparison.rows));
    if (comparison.first_difference) text += fmt::format("  first difference: {}\n", *comparison.first_difference);
    return text;
}

std::string distance_from_stock(const Comparison& comparison) {
    return fmt::format("  beside stock llama.cpp: the same likeliest token in {}, KL divergence {:.2g} on average\n",
                       share(comparison.top1_equal, comparison.positions), comparison.kl_mean());
}

// The closing table; true if all is as it should be.
bool close(const DemoOptions& options, const Setup& setup, const Monolith& monolith, const SwarmRun& run,
           double seconds) {
    const Comparison& comparison = run.comparison;
    const auto tokens = static_cast<double>(comparison.positions);
    fmt::print("{}\n", placement(setup, run));
    const auto per_token = [&](std::uint64_t bytes) {
        return human_bytes(static_cast<std::uint64_t>(static_cast<double>(bytes) / tokens));
    };
    fmt::print("  bytes per token: {} sent, {} received\n", per_token(run.stats.bytes_sent),
               per_token(run.stats.bytes_received));
    fmt::print("  tokens/s: {:.0f} swarm, {:.0f} monolith ({} threads; the workers share this machine's cores)\n",
               run.tokens_per_second, monolith.tokens_per_second, options.threads);
    fmt::print("{}", verdict(setup.map, comparison));
    if (run.from_stock) fmt::print("{}", distance_from_stock(*run.from_stock));
    const bool same_story = run.story == monolith.story;
    const bool complete = comparison.layers_unseen.empty() && comparison.rows > 0;
    if (!same_story) fmt::print("  the story is NOT the monolith's\n");
    if (!complete) fmt::print("  some layers' experts were NOT computed by the backend, and not compared\n");
    if (run.stats.pairs_remote == 0) fmt::print("  NO pair was computed by a worker: nothing was shown\n");
    if (run.killed_at == 0) fmt::print("  the worker was NOT killed\n");
    fmt::print("  took {}\n", human_seconds(seconds));
    return comparison.identical() && same_story && complete && run.stats.pairs_remote > 0 && run.killed_at > 0;
}

Result<int> run_stages(DemoOptions options) {
    const auto start = steady_clock::now();
    Result<GgufModel> model = GgufModel::open(options.model);
    if (!model) return fail(model.error());
    options.model = model->files().front().path;  // llama.cpp wants the first of a split model's files
    Result<ExpertMap> map = map_experts(*model);
    if (!map) return fail(map.error());
    if (map->layers.empty()) {
        return fail(ErrorKind::unsupported, "{} has no routed experts: there is nothing to shard",
                    options.model.string());
    }
    Result<TempDirectory> directory = TempDirectory::create("kvasir-demo-");
    if (!directory) return fail(directory.error());
    const std::filesystem::path manifest_file = directory->path() / "model.kvasir.json";

    Setup setup{.model = std::move(*model),
                .map = std::move(*map),
                .manifest = {},
                .fleet = {},
                .backbone = {},
                .runs = {},
                .assassin = {}};
    if (Status done = publish_stage(manifest_file, setup); !done) return fail(done.error());
    if (interrupted()) return stopped();
    if (Status done = slice_stage(directory->path(), setup); !done) return fail(done.error());
    if (interrupted()) return stopped();
    if (Status done = worker_stage(options, directory->path(), manifest_file, setup); !done) return fail(done.error());
    if (Status done = open_runs(options, setup); !done) return fail(done.error());
    Result<Monolith> monolith = monolith_stage(options, setup);
    if (!monolith) return fail(monolith.error());
    Result<SwarmRun> run = swarm_stage(options, *monolith, setup);
    if (!run) return fail(run.error());
    return close(options, setup, *monolith, *run, seconds_since(start)) ? 0 : exit_code(ErrorKind::mismatch);
}

}  // namespace

Result<int> run_demo(const DemoOptions& options) {
    if (options.tokens < 2 || options.threads < 1) {
        return fail(ErrorKind::usage, "a story has at least 2 tokens and is computed by at least 1 thread");
    }
    return run_stages(options);
}

}  // namespace kvasir
