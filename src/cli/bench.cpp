#include "bench/bench.h"

#include <unistd.h>

#include <memory>

#include "base/units.h"
#include "bench/memory_limit.h"
#include "cli/arithmetic_option.h"
#include "cli/command.h"
#include "cli/paths.h"

namespace kvasir::cli {
namespace {

constexpr const char* kFooter =
    "Every figure stands beside the peer or the bound it is judged by, measured in the same run. Quiet machines only.\n"
    "Examples:\n"
    "  kvasir bench local model.gguf --threads 4     decoding without workers against stock llama.cpp\n"
    "  kvasir bench worker                           a worker's arithmetic against the memory's speed\n"
    "  kvasir bench dispatch --hidden 3072 --used 8  what a layer's call to one worker costs beyond computing\n"
    "  kvasir bench slice model.gguf                 slicing against cp\n"
    "  kvasir bench download                         a hub's byte ranges against nginx\n"
    "  kvasir bench memory                           a worker's memory against the experts it holds\n"
    "  kvasir bench limit model.gguf --memory 2GB    a model larger than its memory, against stock llama.cpp";

struct Flags {
    bool json = false;
    LocalBench local;
    WorkerBench worker;
    DispatchBench dispatch;
    std::string slice_model;
    DownloadBench download;
    LimitBench limit;
    std::string limit_memory;
    bool plain = false;
    bool stock = false;
    std::string cgroup;
};

std::filesystem::path this_program() {
    return std::filesystem::read_symlink("/proc/self/exe");
}

Result<int> print(const Result<BenchReport>& report, bool json) {
    if (!report) return fail(report.error());
    fmt::print("{}\n", json ? to_json(*report) : table(*report));
    return 0;
}

Result<int> run_inside_limit(const Flags& flags) {
    if (!flags.cgroup.empty()) {
        if (Status joined = join_memory_limit(flags.cgroup); !joined) return fail(joined.error());
    }
    Result<std::string> line = limited_run(flags.limit, flags.stock);
    if (!line) return fail(line.error());
    fmt::print("{}\n", *line);
    return 0;
}

Result<int> run_local(Flags& flags) {
    Result<std::filesystem::path> model = whole_model(flags.local.model);
    if (!model) return fail(model.error());
    flags.local.model = *model;
    return print(bench_local(flags.local), flags.json);
}

Result<int> run_limit(Flags& flags) {
    Result<std::filesystem::path> model = whole_model(flags.limit.model);
    if (!model) return fail(model.error());
    flags.limit.model = *model;
    if (!flags.limit_memory.empty()) {
        Result<std::uint64_t> bytes = parse_bytes(flags.limit_memory);
        if (!bytes) return fail(bytes.error().within("--memory"));
        flags.limit.memory = *bytes;
    }
    flags.limit.program = this_program();
    return print(bench_limit(flags.limit), flags.json);
}

void add_threads(CLI::App* command, int& threads) {
    command->add_option("--threads", threads, "Computing threads")->check(CLI::Range(1, 1024))->capture_default_str();
}

}  // namespace

void add_bench(CLI::App& app, Action& action) {
    CLI::App* bench =
        app.add_subcommand("bench", "Speed and memory, as ratios against a peer measured in the same run");
    bench->footer(kFooter);
    bench->require_subcommand(1);
    auto flags = std::make_shared<Flags>();
    auto add = [&](const char* name, const char* description) {
        CLI::App* command = bench->add_subcommand(name, description);
        command->add_flag("--json", flags->json, "One JSON object");
        return command;
    };

    CLI::App* local = add("local", "Decoding without workers against stock llama.cpp");
    local->add_option("MODEL", flags->local.model, "The GGUF model")->required();
    local->add_option("--rounds", flags->local.rounds, "Pairs of runs")
        ->check(CLI::Range(3, 1000))
        ->capture_default_str();
    local->add_option("--tokens", flags->local.tokens, "Tokens a run")
        ->check(CLI::Range(4, 512))
        ->capture_default_str();
    add_arithmetic_option(*local, flags->local.arithmetic);
    add_threads(local, flags->local.threads);
    local->callback([&action, flags] { action = [flags] { return run_local(*flags); }; });

    CLI::App* worker = add("worker", "A worker's arithmetic against the memory's speed");
    worker->add_option("--type", flags->worker.type, "Type of the weights")->type_name("NAME")->capture_default_str();
    worker->add_option("--hidden", flags->worker.hidden, "Columns")
        ->check(CLI::Range(256, 65536))
        ->capture_default_str();
    worker->add_option("--ff", flags->worker.ff, "Expert FF")->check(CLI::Range(256, 65536))->capture_default_str();
    worker->add_option("--experts", flags->worker.experts, "Experts")
        ->check(CLI::Range(8, 1024))
        ->capture_default_str();
    add_threads(worker, flags->worker.threads);
    worker->callback(
        [&action, flags] { action = [flags] { return print(bench_worker(flags->worker), flags->json); }; });

    CLI::App* dispatch = add("dispatch", "What a layer's call to one worker costs beyond computing");
    dispatch->add_option("--hidden", flags->dispatch.hidden, "Columns")
        ->check(CLI::Range(256, 65536))
        ->capture_default_str();
    dispatch->add_option("--used", flags->dispatch.used, "Pairs a call (top-k)")
        ->check(CLI::Range(1, 64))
        ->capture_default_str();
    dispatch->add_option("--calls", flags->dispatch.calls, "Calls")
        ->check(CLI::Range(100, 1000000))
        ->capture_default_str();
    add_arithmetic_option(*dispatch, flags->dispatch.arithmetic);
    dispatch->add_flag("--insecure-loopback", flags->plain, "Without TLS");
    dispatch->callback([&action, flags] {
        action = [flags] {
            flags->dispatch.program = this_program();
            flags->dispatch.tls = !flags->plain;
            return interruptibly([flags] { return print(bench_dispatch(flags->dispatch), flags->json); });
        };
    });

    CLI::App* slice = add("slice", "Slicing all experts against a plain copy");
    slice->add_option("MODEL", flags->slice_model, "The GGUF model")->required();
    slice->callback([&action, flags] {
        action = [flags] {
            return interruptibly([flags] { return print(bench_slice(flags->slice_model), flags->json); });
        };
    });

    CLI::App* download = add("download", "A hub's byte ranges, and whole downloads, against nginx on loopback");
    download->add_option("--nginx", flags->download.nginx, "The nginx program to compare with")->type_name("FILE");
    download->callback([&action, flags] {
        action = [flags] {
            flags->download.program = this_program();
            return interruptibly([flags] { return print(bench_download(flags->download), flags->json); });
        };
    });

    CLI::App* memory = add("memory", "A worker's resident memory against the bytes of its experts");
    memory->callback([&action, flags] {
        action = [flags] {
            return interruptibly([flags] { return print(bench_memory(this_program()), flags->json); });
        };
    });

    CLI::App* limit = add("limit", "A model larger than its memory, in a memory cgroup (needs root)");
    limit->add_option("MODEL", flags->limit.model, "The GGUF model")->required();
    limit->add_option("--memory", flags->limit_memory, "The limit, like 200MB (a third of the model)");
    limit->add_option("--tokens", flags->limit.tokens, "Tokens")->check(CLI::Range(1, 4096))->capture_default_str();
    add_threads(limit, flags->limit.threads);
    add_arithmetic_option(*limit, flags->limit.arithmetic);
    limit->callback(
        [&action, flags] { action = [flags] { return interruptibly([flags] { return run_limit(*flags); }); }; });

    CLI::App* inside = add("limited-run", "");
    inside->group("");  // an inner command of `limit`, not shown
    inside->add_option("MODEL", flags->limit.model)->required();
    inside->add_option("--tokens", flags->limit.tokens);
    inside->add_option("--threads", flags->limit.threads);
    add_arithmetic_option(*inside, flags->limit.arithmetic);
    inside->add_option("--cgroup", flags->cgroup);
    inside->add_flag("--stock", flags->stock);
    inside->callback([&action, flags] { action = [flags] { return run_inside_limit(*flags); }; });
}

}  // namespace kvasir::cli
