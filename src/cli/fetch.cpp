// kvasir fetch: the experts of a few pieces, downloaded into slices.
#include <fmt/format.h>

#include <csignal>
#include <nlohmann/json.hpp>

#include "base/interrupt.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/selection.h"
#include "fetch/download.h"
#include "fetch/hub_client.h"
#include "fetch/piece_cache.h"
#include "fetch/plan.h"

namespace kvasir::cli {
namespace {

constexpr const char* kDescription = "Download the experts of a few pieces from a hub or its mirrors into a slice";

constexpr const char* kFooter =
    "Only the experts asked for cross the network, each is hashed before it counts, and the result is byte for byte "
    "what\n"
    "kvasir slice cuts from the model itself. Whatever ends it (a kill, a full disk, no network), the same command "
    "goes\n"
    "on where it was; once the slice is there, it moves nothing. MODEL is a model id, the beginning of one, a model's\n"
    "name or its file's name; only a full id is proof against a lying hub.\n"
    "With --dir each layer's piece is a file of its own, and --disk bounds them all: those not asked for now go "
    "first.\n"
    "Examples:\n"
    "  kvasir fetch --hub http://hub:7410 MODEL --piece 0-3:0-63 -o part.gguf\n"
    "  kvasir fetch --hub https://hub#PIN MODEL --piece 0-3:0-63 --dir pieces --disk 20GB\n"
    "  kvasir fetch --manifest model.gguf.kvasir.json --from https://files.example/models/ --piece 8:5 -o five.gguf";

struct Flags {
    std::string model;
    std::string hub;
    std::filesystem::path manifest;
    std::vector<std::string> from;
    std::vector<std::string> pieces;
    std::filesystem::path out;
    std::filesystem::path directory;
    std::string disk;
    std::filesystem::path ca;
    int connections = 4;
    int patience = 120;
    bool json = false;
};

struct Job {
    Manifest manifest;
    std::vector<Piece> pieces;
    std::vector<fetch::Source> sources;
    fetch::FetchOptions options;
};

Status check_flags(const Flags& flags) {
    if (flags.hub.empty() == flags.manifest.empty()) {
        return fail(ErrorKind::usage, "say where the model is described: either --hub URL or --manifest FILE");
    }
    if (!flags.hub.empty() && flags.model.empty()) {
        return fail(ErrorKind::usage, "name the MODEL to fetch from that hub (its id, or its name)");
    }
    if (flags.out.empty() == flags.directory.empty()) {
        return fail(ErrorKind::usage, "say where the experts go: either -o FILE or --dir DIR");
    }
    if (!flags.disk.empty() && flags.directory.empty()) return fail(ErrorKind::usage, "--disk goes with --dir");
    return {};
}

Result<std::vector<fetch::Source>> named_sources(const Flags& flags) {
    std::vector<fetch::Source> sources;
    for (const std::string& text : flags.from) {
        Result<http::Url> url = http::parse_url(text);
        if (!url) return fail(url.error().within("--from"));
        sources.push_back({*url, std::nullopt, {flags.ca, std::nullopt}});
    }
    return sources;
}

// The manifest, and the hub as a source if there is one. A kept manifest spares the hub the question.
struct Described {
    Manifest manifest;
    std::optional<fetch::Source> hub;
};
Result<Described> describe_model(const Flags& flags, const http::ClientOptions& client,
                                 const fetch::PieceCache* cache) {
    if (!flags.manifest.empty()) {
        Result<Manifest> manifest = load_manifest(flags.manifest);
        if (!manifest) return fail(manifest.error());
        return Described{std::move(*manifest), std::nullopt};
    }
    Result<fetch::HubAddress> address = fetch::parse_hub(flags.hub);
    if (!address) return fail(address.error().within("--hub"));
    address->trust.ca_file = flags.ca;
    fetch::HubClient hub(*address, client);
    Result<Digest> id = hub.find(flags.model);
    if (!id) return fail(id.error());
    if (cache != nullptr) {
        if (auto kept = cache->kept_manifest(*id)) return Described{std::move(*kept), hub.source(*id)};
    }
    Result<Manifest> manifest = hub.manifest(*id);
    if (!manifest) return fail(manifest.error());
    if (cache != nullptr) {
        if (Status kept = cache->keep(*manifest); !kept) return fail(kept.error());
    }
    return Described{std::move(*manifest), hub.source(*id)};
}

Result<Job> prepare(const Flags& flags, const fetch::PieceCache* cache) {
    Job job;
    job.options.connections = flags.connections;
    job.options.patience = std::chrono::seconds(flags.patience);
    job.options.quiet = flags.json;
    job.options.cancel = &interruption();
    job.options.client.cancel = &interruption();
    Result<std::vector<fetch::Source>> named = named_sources(flags);
    if (!named) return fail(named.error());
    Result<Described> described = describe_model(flags, job.options.client, cache);
    if (!described) return fail(described.error());
    job.manifest = std::move(described->manifest);
    job.sources = fetch::sources_of(job.manifest, described->hub, *named);
    std::vector<Selection> selections;
    for (const std::string& piece : flags.pieces) {
        Result<Selection> selection = parse_piece_option(piece);
        if (!selection) return fail(selection.error());
        selections.push_back(std::move(*selection));
    }
    Result<std::vector<Piece>> pieces = pieces_of(fetch::map_of(job.manifest), selections);
    if (!pieces) return fail(pieces.error());
    job.pieces = std::move(*pieces);
    return job;
}

void add_up(fetch::FetchReport& sum, const fetch::FetchReport& one) {
    sum.size += one.size;
    sum.slab_bytes += one.slab_bytes;
    sum.moved_bytes += one.moved_bytes;
    sum.resumed_bytes += one.resumed_bytes;
    sum.requests += one.requests;
    sum.seconds += one.seconds;
    for (const fetch::SourceReport& source : one.sources) {
        const auto known = std::ranges::find(sum.sources, source.name, &fetch::SourceReport::name);
        if (known == sum.sources.end()) {
            sum.sources.push_back(source);
            continue;
        }
        known->bytes += source.bytes;
        known->requests += source.requests;
        if (!source.trouble.empty()) known->trouble = source.trouble;
        known->dropped = known->dropped || source.dropped;
    }
}

void print_json(const Job& job, const std::vector<std::filesystem::path>& files, const fetch::FetchReport& report) {
    nlohmann::ordered_json paths = nlohmann::ordered_json::array();
    for (const std::filesystem::path& file : files)
        paths.push_back(file.string());
    nlohmann::ordered_json sources = nlohmann::ordered_json::array();
    for (const fetch::SourceReport& source : report.sources) {
        sources.push_back({{"url", source.name},
                           {"bytes", source.bytes},
                           {"requests", source.requests},
                           {"trouble", source.trouble},
                           {"dropped", source.dropped}});
    }
    const nlohmann::ordered_json json = {{"slices", std::move(paths)},
                                         {"model_id", to_hex(job.manifest.model_id())},
                                         {"bytes", report.size},
                                         {"slab_bytes", report.slab_bytes},
                                         {"moved_bytes", report.moved_bytes},
                                         {"resumed_bytes", report.resumed_bytes},
                                         {"requests", report.requests},
                                         {"seconds", report.seconds},
                                         {"sources", std::move(sources)}};
    fmt::print("{}\n", json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

void print_text(const Job& job, const std::vector<std::filesystem::path>& files, const fetch::FetchReport& report) {
    for (const std::filesystem::path& file : files)
        fmt::print("slice      {}\n", file.string());
    fmt::print("holds      {} ({})\n", describe(job.pieces), human_bytes(report.slab_bytes));
    fmt::print("model id   {}\n", to_hex(job.manifest.model_id()));
    const double rate = report.seconds > 0 ? static_cast<double>(report.moved_bytes) / report.seconds : 0;
    fmt::print("moved      {} in {} requests, {} ({}/s)\n", human_bytes(report.moved_bytes), report.requests,
               human_seconds(report.seconds), human_bytes(static_cast<std::uint64_t>(rate)));
    if (report.resumed_bytes > 0) fmt::print("had        {} already\n", human_bytes(report.resumed_bytes));
    for (const fetch::SourceReport& source : report.sources) {
        fmt::print("from       {}: {}{}\n", source.name, human_bytes(source.bytes),
                   source.dropped ? "; dropped: " + source.trouble : "");
    }
}

void print(const Flags& flags, const Job& job, const std::vector<std::filesystem::path>& files,
           const fetch::FetchReport& report) {
    flags.json ? print_json(job, files, report) : print_text(job, files, report);
}

Result<int> fetch_file(const Flags& flags) {
    Result<Job> job = prepare(flags, nullptr);
    if (!job) return fail(job.error());
    Result<fetch::FetchReport> report =
        fetch::fetch_slice(job->manifest, job->pieces, job->sources, flags.out, job->options);
    if (!report) return fail(report.error());
    print(flags, *job, {flags.out}, *report);
    return 0;
}

Result<int> fetch_directory(const Flags& flags) {
    std::uint64_t quota = 0;
    if (!flags.disk.empty()) {
        Result<std::uint64_t> bytes = parse_bytes(flags.disk);
        if (!bytes) return fail(bytes.error().within("--disk"));
        quota = *bytes;
    }
    Result<fetch::PieceCache> cache = fetch::PieceCache::open(flags.directory, quota);
    if (!cache) return fail(cache.error());
    Result<Job> job = prepare(flags, &*cache);
    if (!job) return fail(job.error());
    std::vector<std::filesystem::path> files;
    fetch::FetchReport sum;
    for (const Piece& piece : job->pieces) {
        Result<fetch::PieceCache::Fetched> fetched =
            cache->ensure(job->manifest, piece, job->pieces, job->sources, job->options);
        if (!fetched) return fail(fetched.error());
        files.push_back(fetched->path);
        add_up(sum, fetched->report);
    }
    print(flags, *job, files, sum);
    return 0;
}

Result<int> run(const Flags& flags) {
    if (Status good = check_flags(flags); !good) return fail(good.error());
    // A limit on file sizes is an error like a full disk, not a reason to die.
    std::signal(SIGXFSZ, SIG_IGN);
    return interruptibly([&] { return flags.out.empty() ? fetch_directory(flags) : fetch_file(flags); },
                         "what has come is kept: run the same command again to go on from there");
}

}  // namespace

void add_fetch(CLI::App& app, Action& action) {
    auto flags = std::make_shared<Flags>();
    CLI::App* command = app.add_subcommand("fetch", kDescription);
    command->footer(kFooter);
    command->add_option("MODEL", flags->model, "The model's id or name on the hub");
    command->add_option("--hub", flags->hub, "http://HOST:PORT, https://HOST:PORT or https://HOST:PORT#PIN")
        ->type_name("URL");
    command->add_option("--manifest", flags->manifest, "The manifest, where there is no hub")->type_name("FILE");
    command->add_option("--from", flags->from, "Another directory on the web with the model's files (repeatable)")
        ->allow_extra_args(false)
        ->type_name("URL");
    command->add_option("--piece", flags->pieces, "LAYERS:EXPERTS, such as 0-3:0-63 (repeatable)")
        ->required()
        ->allow_extra_args(false);
    command->add_option("-o,--out", flags->out, "The one slice to write")->type_name("FILE");
    command->add_option("--dir", flags->directory, "A directory for one slice per layer's piece")->type_name("DIR");
    command->add_option("--disk", flags->disk, "The most that directory may hold, like 20GB");
    command->add_option("--ca", flags->ca, "Authorities to trust instead of the system's (PEM)")->type_name("FILE");
    command->add_option("--connections", flags->connections, "Requests at once")
        ->check(CLI::Range(1, 64))
        ->capture_default_str();
    command->add_option("--patience", flags->patience, "Give up after so many seconds without a byte from anybody")
        ->check(CLI::Range(1, 86400))
        ->capture_default_str();
    command->add_flag("--json", flags->json, "Print the result as JSON, and no progress");
    command->callback([flags, &action] { action = [flags] { return run(*flags); }; });
}

}  // namespace kvasir::cli
