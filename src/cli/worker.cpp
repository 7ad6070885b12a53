#include <fmt/format.h>
#include <malloc.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/units.h"
#include "cli/command.h"
#include "cli/paths.h"
#include "cli/stop_signals.h"
#include "gguf/slice.h"
#include "worker/admission.h"
#include "worker/cores.h"
#include "worker/server.h"

namespace kvasir::cli {
namespace {

using std::chrono::steady_clock;

struct Flags {
    std::vector<std::filesystem::path> slices;
    std::string listen = "127.0.0.1:7411";
    std::vector<std::string> admit;
    std::filesystem::path admit_file;
    std::filesystem::path identity = default_identity_path();
    bool insecure = false;
    int threads = 0;  // one per physical core
    int nice = 5;
    int drain_seconds = 10;
    bool pin = false;
    bool skip_check = false;
    bool json = false;
};

Result<ServerOptions> make_options(const Flags& flags) {
    ServerOptions options;
    Result<Address> address = parse_address(flags.listen, kDefaultWorkerPort);
    if (!address) return fail(address.error().within("--listen"));
    options.listen = *address;
    options.threads = flags.threads > 0 ? flags.threads : static_cast<int>(physical_cores().size());
    options.io_threads = options.threads > 4 ? 2 : 1;
    const bool admits = !flags.admit.empty() || !flags.admit_file.empty();
    if (flags.insecure) {
        if (admits) return fail(ErrorKind::usage, "--admit needs TLS: leave --insecure-loopback out");
        return options;
    }
    Result<std::set<NodeId>> admitted = read_admissions(flags.admit, flags.admit_file);
    if (!admitted) return fail(admitted.error());
    if (admitted->empty()) {
        return fail(ErrorKind::usage,
                    "nobody is admitted: name the backbone with --admit ID (run 'kvasir identity' on the backbone's "
                    "machine to see its id) or --admit-file FILE");
    }
    options.admitted = std::move(*admitted);
    Result<Identity> identity = Identity::load_or_create(flags.identity);
    if (!identity) return fail(identity.error());
    options.identity = std::make_shared<Identity>(std::move(*identity));
    return options;
}

Status behave(const Flags& flags, int threads) {
    // Large buffers go back to the system when they are done with, so that memory stays near that of the weights.
    mallopt(M_MMAP_THRESHOLD, 1 << 20);
    if (flags.nice != 0 && setpriority(PRIO_PROCESS, 0, flags.nice) != 0) {
        spdlog::warn("cannot lower the priority to nice {}", flags.nice);
    }
    return flags.pin ? pin_to_cores(threads) : Status{};
}

// A whole model's digests are in the manifest beside it, a slice's in the slice.
Result<std::optional<Manifest>> manifest_beside(const std::filesystem::path& model) {
    std::error_code ignored;
    if (!std::filesystem::exists(manifest_path(model), ignored)) return std::nullopt;
    Result<Manifest> manifest = load_manifest(manifest_path(model));
    if (!manifest) return fail(manifest.error());
    return std::move(*manifest);
}

// A file that is named twice is served once.
std::vector<std::filesystem::path> distinct(const std::vector<std::filesystem::path>& slices) {
    std::vector<std::filesystem::path> files;
    for (const std::filesystem::path& slice : slices) {
        std::error_code ignored;
        auto same = [&](const std::filesystem::path& file) {
            return std::filesystem::equivalent(file, slice, ignored);
        };
        if (std::ranges::any_of(files, same)) {
            spdlog::warn("{}: is named more than once", slice.string());
        } else {
            files.push_back(slice);
        }
    }
    return files;
}

// Of the experts held, each counted once however many slices it is in.
std::uint64_t distinct_bytes(const PieceStore& store) {
    std::uint64_t bytes = 0;
    for (const Piece& piece : store.pieces()) {
        for (std::uint32_t expert = piece.first; expert < piece.first + piece.count; ++expert) {
            if (const auto place = store.find(piece.layer, expert)) bytes += place->held->expert_bytes;
        }
    }
    return bytes;
}

Status check_slices(const Flags& flags) {
    for (const std::filesystem::path& path : flags.slices) {
        Result<std::optional<Manifest>> manifest = manifest_beside(path);
        if (!manifest) return fail(manifest.error());
        Result<std::uint64_t> checked = check_slice(path, *manifest ? &**manifest : nullptr, false);
        if (!checked) return fail(checked.error());
        spdlog::info("{}: {} of weights are as they were cut", path.string(), human_bytes(*checked));
    }
    return {};
}

// The line that says this worker serves; scripts wait for it.
void print_ready(const Flags& flags, const ServerOptions& options, const Server& server) {
    const PieceStore& store = server.store();
    const std::uint64_t bytes = distinct_bytes(store);
    if (bytes < store.weight_bytes()) {
        spdlog::warn("{} of the slices are experts that another of them holds too",
                     human_bytes(store.weight_bytes() - bytes));
    }
    const Address local = server.local_address();
    const std::string address = local.text();
    const std::string id = options.identity ? to_hex(options.identity->id()) : "";
    const bool everywhere = local.host == "::" || local.host == "0.0.0.0";
    const std::string reached_at = everywhere ? fmt::format("HOST:{}", local.port) : address;
    if (flags.json) {
        const nlohmann::json line = {{"ready", true},
                                     {"address", address},
                                     {"id", id.empty() ? nlohmann::json() : nlohmann::json(id)},
                                     {"experts", store.expert_count()},
                                     {"weight_bytes", bytes},
                                     {"model_id", to_hex(store.model_id())},
                                     {"pieces", describe(store.pieces())},
                                     {"threads", options.threads}};
        fmt::print("{}\n", line.dump());
    } else {
        fmt::print("ready: listening on {}, {}, {} experts ({}), {} threads; {}; backbones use --worker {}{}\n",
                   address, id.empty() ? "without TLS" : "node id " + id, human_count(store.expert_count()),
                   human_bytes(bytes), options.threads, describe(store.pieces()), reached_at,
                   id.empty() ? "" : "#" + id);
    }
    std::fflush(stdout);
}

// One line per interval in which something was computed.
void log_rates(const ServerStats& before, const ServerStats& now, double seconds) {
    const std::uint64_t pairs = now.computed.pairs - before.computed.pairs;
    if (pairs == 0) return;
    const double busy = static_cast<double>(now.computed.compute_us - before.computed.compute_us) * 1e-6;
    const std::uint64_t jobs = now.computed.jobs - before.computed.jobs;
    const double wait_us = static_cast<double>(now.computed.queue_us - before.computed.queue_us);
    const double bytes = static_cast<double>(now.computed.weight_bytes - before.computed.weight_bytes);
    spdlog::info(
        "{:.0f} pairs/s in {:.0f} requests/s, {:.1f} GB/s of weights while computing, busy {:.0f} %, requests waited "
        "{} on average, {} backbones",
        static_cast<double>(pairs) / seconds, static_cast<double>(jobs) / seconds, busy > 0 ? bytes / busy * 1e-9 : 0.0,
        100 * busy / seconds, human_seconds(wait_us * 1e-6 / static_cast<double>(jobs)), now.sessions);
}

void serve_until_signal(const Server& server, const StopSignals& signals) {
    constexpr std::chrono::seconds kInterval{10};
    ServerStats before = server.stats();
    steady_clock::time_point then = steady_clock::now();
    while (!signals.wait(kInterval)) {
        const ServerStats stats = server.stats();
        const steady_clock::time_point now = steady_clock::now();
        log_rates(before, stats, std::chrono::duration<double>(now - then).count());
        before = stats;
        then = now;
    }
}

// A worker runs for weeks, unwatched: its log tells what it did, and when.
void log_as_a_service() {
    spdlog::set_level(spdlog::level::info);
    spdlog::set_pattern("%Y-%m-%d %H:%M:%S kvasir: %l: %v");
}

Result<int> run(Flags flags) {
    log_as_a_service();
    if (Status good = check_key_path(flags.identity); !good) return fail(good.error());
    flags.slices = distinct(flags.slices);
    Result<ServerOptions> options = make_options(flags);
    if (!options) return fail(options.error());
    if (Status status = behave(flags, options->threads); !status) return fail(status.error());

    // The port first: mapping and checking may take minutes, a taken port is known at once.
    Result<std::unique_ptr<Server>> server = Server::bind(*options);
    if (!server) return fail(server.error());
    if (!flags.skip_check) {
        if (Status status = check_slices(flags); !status) return fail(status.error());
    }
    const auto epoch =
        std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch());
    Result<PieceStore> store = PieceStore::open(flags.slices, static_cast<std::uint64_t>(epoch.count()));
    if (!store) return fail(store.error());
    const StopSignals signals;
    if (Status status = (*server)->serve(std::move(*store)); !status) return fail(status.error());
    print_ready(flags, *options, **server);

    serve_until_signal(**server, signals);
    spdlog::info("finishing what was asked (at most {} s; another signal ends it at once)", flags.drain_seconds);
    signals.release();
    if (!(*server)->drain(std::chrono::seconds(flags.drain_seconds))) spdlog::warn("some requests were not finished");
    return 0;
}

constexpr const char* kFooter =
    "Serves the experts in its slices to the backbones it admits. One worker serves one model, many layers and "
    "several\n"
    "backbones. It prints a line with 'ready' once it serves, and finishes politely on SIGTERM or Ctrl-C.\n"
    "It computes with one thread per physical core at a lowered priority (--nice), so that it stays out of the way of\n"
    "other work on the machine.\n"
    "\nExamples:\n"
    "  kvasir worker --slice part.gguf --admit BACKBONE_ID                  for a backbone on this machine\n"
    "  kvasir worker --slice a.gguf b.gguf --listen :7411 --admit-file ids  for backbones on other machines\n"
    "  kvasir worker --slice part.gguf --insecure-loopback                  without TLS, this machine only";

}  // namespace

void add_worker(CLI::App& app, Action& action) {
    auto flags = std::make_shared<Flags>();
    CLI::App* command = app.add_subcommand("worker", "Serve the experts of slices to backbones");
    command->add_option("--slice", flags->slices, "Slices made by kvasir slice, or a whole published model")
        ->required()
        ->type_name("FILE");
    command->add_option("--listen", flags->listen, "Where to listen; ':7411' is all interfaces")
        ->capture_default_str()
        ->type_name("ADDR");
    command->add_option("--admit", flags->admit, "Node ids of the backbones to serve")->type_name("ID");
    command->add_option("--admit-file", flags->admit_file, "A file of node ids, one per line")->type_name("FILE");
    command->add_option("--identity", flags->identity, "This worker's key file; made where there is none")
        ->capture_default_str()
        ->type_name("FILE");
    command->add_flag("--insecure-loopback", flags->insecure, "No TLS and no admission; on a loopback address only");
    command->add_option("--threads", flags->threads, "Threads to compute with (default: one per physical core)")
        ->check(CLI::Range(1, 512))
        ->type_name("N");
    command->add_flag("--pin", flags->pin, "Stay on as many physical cores as there are threads");
    command->add_option("--nice", flags->nice, "How far to stand back behind other programs; 0: not at all")
        ->check(CLI::Range(0, 19))
        ->capture_default_str()
        ->type_name("N");
    command->add_flag("--skip-check", flags->skip_check,
                      "Serve without hashing all weights first (about 1 GB/s): damage on the disk goes unnoticed");
    command->add_option("--drain-seconds", flags->drain_seconds, "The most time to finish requests when told to stop")
        ->check(CLI::Range(0, 3600))
        ->capture_default_str()
        ->type_name("S");
    command->add_flag("--json", flags->json, "Print the ready line as JSON");
    command->footer(kFooter);
    command->callback([flags, &action] { action = [flags] { return run(*flags); }; });
}

}  // namespace kvasir::cli
