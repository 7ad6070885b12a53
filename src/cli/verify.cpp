// kvasir verify: proves that the experts' place changes no bit.
#include "verify/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "backbone/open_backbone.h"
#include "cli/arithmetic_option.h"
#include "cli/command.h"
#include "cli/paths.h"

namespace kvasir::cli {
namespace {

constexpr const char* kDescription = "Prove that a model gives the same bits wherever its experts are computed";

constexpr const char* kFooter =
    "Compared are every logit at every position and every expert output row of stock llama.cpp, of the backbone\n"
    "without workers, and of the backbone with workers.\n"
    "All runs read the same file, in the same batches, with the same threads, without weight repacking. The text is\n"
    "computed twice: in batches, as a prompt is, and token by token, as an answer is. Where no text is given and no\n"
    "tales-heldout.txt lies beside the model, pseudo-random tokens serve.\n"
    "\n"
    "It compares a model with itself. Whether the file, or a slice, is what was published is the question of\n"
    "'kvasir publish' and 'kvasir slice --check'.\n"
    "In ggml-cpu all three must be equal. In portable the backbone must be equal with and without workers; how far it\n"
    "and stock llama.cpp are from experts computed in f64 is shown (KL divergence, perplexity), and how far stock is\n"
    "from itself with its weights repacked.\n"
    "\n"
    "Examples:\n"
    "  kvasir verify model.gguf                                the backbone alone, beside stock and exact experts\n"
    "  kvasir verify model.gguf --worker host:7411#WORKER_ID   and with a worker (repeatable)\n"
    "  kvasir verify big.gguf --tokens 2048 --single-tokens 64 --threads 16 --worker …\n"
    "  kvasir verify model.gguf --arithmetic ggml-cpu          every bit against stock llama.cpp's\n"
    "  kvasir verify model.gguf --text prose.txt --json        for scripts\n"
    "Exit codes: 0 identical; 1 a difference; 4 no worker serves, or none computed anything: nothing was proven.";

struct Flags {
    VerifyOptions verify;
    BackboneOptions backbone;
    std::string model;
    std::string text;
    std::string manifest;
    std::string identity;
    std::uint64_t deadline_ms = 2000;
    std::uint64_t wait_seconds = 10;
    bool json = false;
};

using State = WorkerStatus::State;

// It has served, or never will: nothing to wait for. One that was lost again is a part of the proof.
bool settled(const WorkerStatus& worker) {
    return worker.state == State::serving || worker.state == State::refused || worker.failures > 0;
}

bool serves(const WorkerStatus& worker) {
    return worker.state == State::serving;
}

bool refused(const WorkerStatus& worker) {
    return worker.state == State::refused;
}

// Until every worker has been there and one is there now, or no more can come; at most `timeout`.
std::vector<WorkerStatus> wait_until_settled(const Dispatcher& dispatcher, std::chrono::seconds timeout) {
    const auto end = std::chrono::steady_clock::now() + timeout;
    for (;;) {
        std::vector<WorkerStatus> workers = dispatcher.stats().workers;
        const bool enough = std::ranges::any_of(workers, serves) || std::ranges::all_of(workers, refused);
        if (enough && std::ranges::all_of(workers, settled)) return workers;
        if (std::chrono::steady_clock::now() >= end) return workers;
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
}

// Workers that don't serve in time are named; one that does is enough to prove something.
Status await_workers(const Dispatcher& dispatcher, std::uint64_t seconds) {
    const std::vector<WorkerStatus> workers = wait_until_settled(dispatcher, std::chrono::seconds(seconds));
    const auto serving = std::ranges::count_if(workers, serves);
    std::string away;
    for (const WorkerStatus& worker : workers) {
        if (!serves(worker)) away += "\n  " + describe_worker(worker);
    }
    if (serving == 0) return fail(ErrorKind::unavailable, "no worker serves, so nothing could be proven:{}", away);
    if (!away.empty()) {
        fmt::print(stderr, "kvasir: warning: {} of {} workers serve; the proof is about them alone, not about:{}\n",
                   serving, workers.size(), away);
    }
    return {};
}

Result<int> run(Flags flags) {
    if (Status good = check_key_path(flags.identity); !good) return fail(good.error());
    Result<std::filesystem::path> model = whole_model(flags.model);
    if (!model) return fail(model.error());
    flags.backbone.arithmetic = flags.verify.arithmetic;
    flags.backbone.model = *model;
    flags.backbone.manifest = flags.manifest;
    flags.backbone.identity = flags.identity;
    flags.backbone.prefer_workers = true;  // the more they compute, the more is proven
    flags.backbone.deadline = std::chrono::milliseconds(flags.deadline_ms);
    flags.verify.model = *model;
    flags.verify.text = flags.text;
    flags.verify.quiet = flags.json;
    if (!flags.backbone.workers.empty()) {
        Result<Backbone> backbone = open_backbone(flags.backbone);
        if (!backbone) return fail(backbone.error());
        if (Status waited = await_workers(*backbone->config.dispatcher, flags.wait_seconds); !waited) {
            if (!backbone->id) return fail(waited.error());
            return fail(waited.error().kind, "{}\nThis node's id, which they must admit: {}", waited.error().message,
                        to_hex(*backbone->id));
        }
        flags.verify.dispatcher = backbone->config.dispatcher;
        flags.verify.manifest = backbone->config.manifest;
    }
    flags.verify.on_begin = [&flags] {
        fmt::print(stderr, "kvasir: comparing the runs on {} tokens\n", flags.verify.tokens);
    };
    Result<VerifyReport> report = verify(flags.verify);
    if (!report) return fail(report.error());
    fmt::print("{}", flags.json ? to_json(*report) : table(*report));
    return report->identical() ? 0 : exit_code(ErrorKind::mismatch);
}

}  // namespace

void add_verify(CLI::App& app, Action& action) {
    auto flags = std::make_shared<Flags>();
    flags->verify.threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
    CLI::App* command = app.add_subcommand("verify", kDescription);
    command->footer(kFooter);
    command->add_option("MODEL", flags->model, "The GGUF model; of a split one, any of its files")->required();
    command->add_option("--worker", flags->backbone.workers, "HOST:PORT#NODEID of a worker (repeatable)")
        ->allow_extra_args(false);
    command->add_option("--text", flags->text, "The text to compute")->type_name("FILE");
    command->add_option("--tokens", flags->verify.tokens, "Positions computed in batches")
        ->capture_default_str()
        ->check(CLI::Range(1U, 10'000'000U));
    command
        ->add_option("--single-tokens", flags->verify.single_tokens, "Of these, positions computed one by one as well")
        ->capture_default_str();
    command->add_option("--batch", flags->verify.batch, "The most tokens of one batch")
        ->capture_default_str()
        ->check(CLI::Range(1U, 4096U));
    command->add_option("--threads", flags->verify.threads, "Computing threads")
        ->capture_default_str()
        ->check(CLI::Range(1, 1024));
    add_arithmetic_option(*command, flags->verify.arithmetic);
    command
        ->add_option("--exact-tokens", flags->verify.exact_tokens,
                     "Positions computed with exact experts too, for portable (slow)")
        ->capture_default_str();
    command->add_option("--manifest", flags->manifest, "The model's manifest (default: the one beside it)")
        ->type_name("FILE");
    command->add_option("--identity", flags->identity, "This node's key (default: see kvasir identity)")
        ->type_name("FILE");
    command->add_option("--wait", flags->wait_seconds, "How long to wait for all workers to serve, in seconds")
        ->capture_default_str()
        ->check(CLI::Range(0U, 86'400U));
    command->add_option("--deadline", flags->deadline_ms, "The longest a call waits for a worker, in milliseconds")
        ->capture_default_str()
        ->check(CLI::Range(1U, 3'600'000U));
    command->add_flag("--insecure-loopback", flags->backbone.insecure_loopback,
                      "Allow workers on loopback without TLS (HOST:PORT)");
    command->add_flag("--json", flags->json, "Print the report as JSON, and no progress");
    command->callback([flags, &action] { action = [flags] { return run(*flags); }; });
}

}  // namespace kvasir::cli
