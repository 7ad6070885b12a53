// kvasir serve: llama.cpp's server with the Kvasir backend in it.
#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "backbone/ggml_backend.h"
#include "backbone/open_backbone.h"
#include "base/files.h"
#include "base/units.h"
#include "cli/command.h"

// llama.cpp's server as a function; its library exports it without a header.
int llama_server(int argc, char** argv);

namespace kvasir::cli {
namespace {

constexpr std::uint16_t kServerPort = 8080;  // llama-server's own default

constexpr const char* kFooter =
    "All other options go to llama-server (--port, -c, -t, --api-key, …), and so does all that follows --.\n"
    "A pair goes where it is expected to be done first: to a worker that holds it, or here. Where changes no bit.\n"
    "\n"
    "Examples:\n"
    "  kvasir serve model.gguf                                        no workers: experts read as they are used\n"
    "  kvasir serve model.gguf --worker host:7411#WORKER_ID --port 8080 -c 8192\n"
    "  kvasir serve model.gguf --workers-file workers.txt --wait 60   start when all of them serve\n"
    "  curl localhost:8080/v1/completions -d '{\"prompt\": \"Once\", \"max_tokens\": 32}'";

struct ServeFlags {
    std::string model;
    std::vector<std::string> workers;
    std::string workers_file;
    std::string manifest;
    std::string identity;
    std::uint64_t deadline_ms = 2000;
    std::uint64_t wait_seconds = 0;
    bool insecure_loopback = false;
    bool prefer_workers = false;
    std::vector<std::string> server_arguments;
    std::vector<std::string> never_taken;
};

// The last value given for `flag`, then the environment's, then `fallback`: as llama-server decides it.
std::string server_option(const std::vector<std::string>& arguments, std::string_view flag, const char* variable,
                          const std::string& fallback) {
    const char* environment = std::getenv(variable);
    std::string value = environment != nullptr ? environment : fallback;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
        std::string_view argument = arguments[i];
        if (argument == flag && i + 1 < arguments.size()) value = arguments[i + 1];
    }
    return value;
}

Status check_port(const std::string& host, const std::string& port) {
    if (host.ends_with(".sock")) return {};
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
    addrinfo* found = nullptr;
    if (int code = getaddrinfo(host.c_str(), port.c_str(), &hints, &found); code != 0) {
        return fail(ErrorKind::usage, "cannot listen on {}:{}: {}", host, port, gai_strerror(code));
    }
    std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(found, freeaddrinfo);
    File listener(socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (listener.descriptor() < 0) return {};  // llama-server will say what is wrong
    int yes = 1;
    setsockopt(listener.descriptor(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    if (bind(listener.descriptor(), found->ai_addr, found->ai_addrlen) == 0) return {};
    if (errno == EADDRINUSE) {
        return fail(ErrorKind::unavailable,
                    "port {} on {} is taken: stop what listens there, or choose another with --port", port, host);
    }
    return fail(ErrorKind::unavailable, "cannot listen on {}:{}: {}", host, port, std::strerror(errno));
}

// The model is named once, first: another one would be served while the swarm is that of the first.
Status check_model_options(const std::vector<std::string>& arguments) {
    for (const std::string& argument : arguments) {
        for (std::string_view option : {"-m", "--model", "-mu", "--model-url", "-hf", "--hf-repo"}) {
            if (argument == option) {
                return fail(ErrorKind::usage, "{}: the model is the first argument of kvasir serve, and the only one",
                            option);
            }
        }
    }
    return {};
}

// Tries to bind the ports as llama-server will, before minutes go into loading a model.
Status check_ports(const std::vector<std::string>& arguments) {
    bool shared = std::find(arguments.begin(), arguments.end(), "--reuse-port") != arguments.end();
    if (shared) return {};
    std::istringstream hosts(server_option(arguments, "--host", "LLAMA_ARG_HOST", "127.0.0.1"));
    std::string port = server_option(arguments, "--port", "LLAMA_ARG_PORT", std::to_string(kServerPort));
    bool digits = !port.empty() && port.size() <= 5 && std::all_of(port.begin(), port.end(), ::isdigit);
    if (!digits || std::stoi(port) > 65535) return fail(ErrorKind::usage, "--port {}: a port is 0 to 65535", port);
    for (std::string host; std::getline(hosts, host, ',');) {
        if (Status free = check_port(host, port); !free) return free;
    }
    return {};
}

Result<BackboneOptions> backbone_options(const ServeFlags& flags) {
    BackboneOptions options;
    options.model = flags.model;
    options.manifest = flags.manifest;
    options.identity = flags.identity;
    options.workers = flags.workers;
    options.deadline = std::chrono::milliseconds(flags.deadline_ms);
    options.insecure_loopback = flags.insecure_loopback;
    options.prefer_workers = flags.prefer_workers;
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
    // Repacked weights would be a second copy in memory; a warm-up would read every expert of the model from disk.
    std::vector<std::string> arguments = {"kvasir-serve", "-m", flags.model, "--no-repack", "--no-warmup"};
    arguments.insert(arguments.end(), flags.server_arguments.begin(), flags.server_arguments.end());
    std::vector<char*> pointers;
    pointers.reserve(arguments.size() + 1);
    for (std::string& argument : arguments)
        pointers.push_back(argument.data());
    pointers.push_back(nullptr);
    return llama_server(static_cast<int>(arguments.size()), pointers.data());
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

Result<int> serve(const ServeFlags& flags) {
    hang_up_like_terminate();
    if (Status one = check_model_options(flags.server_arguments); !one) return fail(one.error());
    if (Status free = check_ports(flags.server_arguments); !free) return fail(free.error());
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
    command->add_option("model", flags->model, "The GGUF model (any split of it); before llama-server's options")
        ->required();
    command->add_option("--worker", flags->workers, "HOST:PORT#NODEID of a worker (repeatable)")
        ->allow_extra_args(false);
    command->add_option("--workers-file", flags->workers_file, "A file with one worker per line");
    command->add_option("--manifest", flags->manifest, "The model's manifest (default: beside the model)");
    command->add_option("--identity", flags->identity, "This node's key (default: ~/.config/kvasir/identity.pem)");
    command->add_option("--deadline", flags->deadline_ms, "The longest wait for a worker, in milliseconds")
        ->capture_default_str()
        ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{3'600'000}));
    command->add_option("--wait", flags->wait_seconds, "Start only when all workers serve; fail after these seconds")
        ->check(CLI::Range(std::uint64_t{0}, std::uint64_t{86'400}));
    command->add_flag("--prefer-workers", flags->prefer_workers,
                      "Give workers all they hold, even what this machine would compute sooner");
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
