// kvasir serve: llama.cpp's server with the Kvasir backend in it.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "backbone/evidence.h"
#include "backbone/ggml_backend.h"
#include "backbone/open_backbone.h"
#include "base/units.h"
#include "cli/arithmetic_option.h"
#include "cli/command.h"
#include "cli/paths.h"
#include "cli/server_options.h"

// llama.cpp's server as a function; its library exports it without a header.
int llama_server(int argc, char** argv);

namespace kvasir::cli {
namespace {

constexpr const char* kFooter =
    "All other options go to llama-server (--port, -c, -t, --api-key, …), and so does all that follows --.\n"
    "A pair goes where it is expected to be done first: to a worker that holds it, or here. Where changes no bit.\n"
    "\n"
    "Examples:\n"
    "  kvasir serve model.gguf                                        no workers: experts read as they are used\n"
    "  kvasir serve model.gguf --worker host:7411#WORKER_ID --port 8080 -c 8192\n"
    "  kvasir serve model.gguf --workers-file workers.txt --wait 60   start when all of them serve\n"
    "  curl localhost:8080/v1/completions -d '{\"prompt\": \"Once\", \"max_tokens\": 32}'\n"
    "Exit codes: 2 an option that llama-server does not take; once it has taken over, its own.";

struct ServeFlags {
    std::filesystem::path model;
    std::vector<std::string> workers;
    std::string workers_file;
    std::string manifest;
    std::string identity;
    std::string evidence;
    std::uint64_t deadline_ms = 2000;
    std::uint64_t wait_seconds = 0;
    bool insecure_loopback = false;
    bool prefer_workers = false;
    bool strict = false;
    Arithmetic arithmetic = Arithmetic::portable;
    std::vector<std::string> server_arguments;
    std::vector<std::string> never_taken;
};

Result<BackboneOptions> backbone_options(const ServeFlags& flags) {
    BackboneOptions options;
    options.model = flags.model;
    options.manifest = flags.manifest;
    options.identity = flags.identity;
    options.evidence = flags.evidence;
    options.strict = flags.strict;
    options.workers = flags.workers;
    options.deadline = std::chrono::milliseconds(flags.deadline_ms);
    options.insecure_loopback = flags.insecure_loopback;
    options.prefer_workers = flags.prefer_workers;
    options.arithmetic = flags.arithmetic;
    if (!flags.workers_file.empty()) {
        Result<std::vector<std::string>> listed = read_workers_file(flags.workers_file);
        if (!listed) return fail(listed.error());
        options.workers.insert(options.workers.end(), listed->begin(), listed->end());
    }
    return options;
}

// Prints each worker's state when it changes, until destroyed.
class WorkerReporter {
  public:
    explicit WorkerReporter(std::shared_ptr<Dispatcher> dispatcher)
        : dispatcher_(std::move(dispatcher)), thread_([this] { run(); }) {}
    ~WorkerReporter() {
        {
            std::scoped_lock lock(mutex_);
            stopping_ = true;
        }
        changed_.notify_all();
        thread_.join();
    }
    WorkerReporter(const WorkerReporter&) = delete;
    WorkerReporter& operator=(const WorkerReporter&) = delete;

  private:
    void run() {
        std::unique_lock lock(mutex_);
        do {
            report();
        } while (!changed_.wait_for(lock, std::chrono::seconds(1), [this] { return stopping_; }));
    }

    void report() {
        SwarmStats stats = dispatcher_->stats();
        for (std::size_t i = 0; i < stats.workers.size(); ++i) {
            std::string line = describe_worker(stats.workers[i]);
            std::string& shown = shown_[i];
            if (shown == line) continue;
            fmt::print(stderr, "kvasir: {}\n", line);
            shown = std::move(line);
        }
    }

    std::shared_ptr<Dispatcher> dispatcher_;
    std::map<std::size_t, std::string> shown_;
    std::mutex mutex_;
    std::condition_variable changed_;
    bool stopping_ = false;
    std::thread thread_;  // last: it uses all of the above
};

Status wait_for_workers(Dispatcher& dispatcher, std::uint64_t seconds) {
    if (seconds == 0 || dispatcher.wait_for_workers(std::chrono::seconds(seconds))) return {};
    std::string states;
    for (const WorkerStatus& worker : dispatcher.stats().workers)
        states += "\n  " + describe_worker(worker);
    return fail(ErrorKind::unavailable, "after {} s not every worker serves:{}", seconds, states);
}

int run_server(const ServeFlags& flags) {
    std::vector<std::string> arguments = server_command_line(flags.model, flags.server_arguments);
    return llama_server(static_cast<int>(arguments.size()), argv_of(arguments).data());
}

// llama-server ends in good order on SIGTERM, but knows no SIGHUP. (Before it listens, Kvasir ends on both.)
void hang_up_like_terminate() {
    struct sigaction before {};
    if (sigaction(SIGHUP, nullptr, &before) != 0 || before.sa_handler == SIG_IGN) return;
    struct sigaction action {};
    action.sa_handler = [](int) { raise(SIGTERM); };
    sigaction(SIGHUP, &action, nullptr);
}

void print_summary(const SwarmStats& stats) {
    fmt::print(stderr, "kvasir: {} pairs computed by workers, {} here; {} sent, {} received\n",
               human_count(stats.pairs_remote), human_count(stats.pairs_local), human_bytes(stats.bytes_sent),
               human_bytes(stats.bytes_received));
}

Result<int> serve(ServeFlags flags) {
    hang_up_like_terminate();
    if (Status good = check_key_path(flags.identity); !good) return fail(good.error());
    Result<std::filesystem::path> model = whole_model(flags.model);
    if (!model) return fail(model.error());
    flags.model = *model;
    if (Status good = check_server_options(flags.server_arguments); !good) return fail(good.error());
    Result<BackboneOptions> options = backbone_options(flags);
    if (!options) return fail(options.error());
    Result<Backbone> opened = open_backbone(*options);
    if (!opened) return fail(opened.error());
    if (opened->id) {
        fmt::print(stderr, "kvasir: this backbone's node id, for the workers' --admit: {}\n", to_hex(*opened->id));
    }
    std::shared_ptr<Dispatcher> dispatcher = opened->config.dispatcher;
    if (dispatcher) {
        if (Status serving = wait_for_workers(*dispatcher, flags.wait_seconds); !serving) return fail(serving.error());
    } else if (opened->map.layers.empty()) {
        fmt::print(stderr, "kvasir: a dense model: there are no experts to share, llama-server serves it alone\n");
    } else {
        fmt::print(stderr, "kvasir: no workers: all {} experts are computed here\n",
                   human_count(opened->map.expert_count()));
    }
    Result<std::shared_ptr<Backend>> backend = register_backend(std::move(opened->config), BackendUse::fixed);
    if (!backend) return fail(backend.error());
    if (!dispatcher) return run_server(flags);
    int code = 0;
    {
        WorkerReporter reporter(dispatcher);
        code = run_server(flags);
    }
    (*backend)->configure({});
    print_summary(dispatcher->stats());
    return code;
}

}  // namespace

void add_serve(CLI::App& app, Action& action) {
    CLI::App* command =
        app.add_subcommand("serve", "Serve a model with an OpenAI-compatible API, its experts on workers");
    auto flags = std::make_shared<ServeFlags>();
    command->add_option("MODEL", flags->model, "The GGUF model (any split of it); before llama-server's options")
        ->required();
    command->add_option("--worker", flags->workers, "HOST:PORT#NODEID of a worker (repeatable)")
        ->allow_extra_args(false);
    command->add_option("--workers-file", flags->workers_file, "A file with one worker per line");
    command->add_option("--manifest", flags->manifest, "The model's manifest (default: beside the model)");
    command->add_option("--identity", flags->identity, "This node's key (default: see kvasir identity)");
    command->add_option("--deadline", flags->deadline_ms, "The longest wait for a worker, in milliseconds")
        ->capture_default_str()
        ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{3'600'000}));
    command->add_option("--wait", flags->wait_seconds, "Start only when all workers serve; fail after these seconds")
        ->check(CLI::Range(std::uint64_t{0}, std::uint64_t{86'400}));
    command->add_flag("--prefer-workers", flags->prefer_workers,
                      "Give workers all they hold, even what this machine would compute sooner");
    add_arithmetic_option(*command, flags->arithmetic);
    command->add_flag("--strict", flags->strict,
                      "What is audited of a worker's answers is checked before it is used, not after");
    command
        ->add_option("--evidence", flags->evidence,
                     "A directory for wrong answers that their workers signed (see kvasir audit check)")
        ->default_str(default_evidence_directory().string());
    command->add_flag("--insecure-loopback", flags->insecure_loopback,
                      "Allow workers without TLS (HOST:PORT), on this machine only");
    command->allow_extras();
    // CLI11 hands what follows "--" to a subcommand only while it wants more positionals: this one wants, takes
    // nothing, and leaves all of it to remaining(), in order.
    command->add_option("llama-server", flags->never_taken)
        ->group("")
        ->check(CLI::Validator([](std::string&) { return std::string("left to llama-server"); }, ""));
    command->validate_positionals();
    command->footer(kFooter);
    command->callback([command, flags, &action] {
        flags->server_arguments = command->remaining();
        auto mark = std::find(flags->server_arguments.begin(), flags->server_arguments.end(), "--");
        if (mark != flags->server_arguments.end()) flags->server_arguments.erase(mark);
        action = [flags] { return serve(*flags); };
    });
}

}  // namespace kvasir::cli
