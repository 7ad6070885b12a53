// A hub's byte ranges against nginx's: the same client, the same file, the same machine, in turn.
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "base/child_process.h"
#include "base/interrupt.h"
#include "base/temp_directory.h"
#include "base/units.h"
#include "bench/bench.h"
#include "fetch/download.h"
#include "http/client.h"
#include "http/range.h"
#include "http/server.h"
#include "synth/synth.h"

namespace kvasir {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::seconds kPatience{60};
constexpr std::uint64_t kRange = 4 << 20;  // of one request
constexpr int kRounds = 7;

double seconds_since(steady_clock::time_point start) {
    return std::chrono::duration<double>(steady_clock::now() - start).count();
}

// A web server process and where it has the model's file.
struct Served {
    std::unique_ptr<ChildProcess> process;
    http::Url file;
};

Result<Served> start_hub(const std::filesystem::path& program, const std::filesystem::path& model) {
    ChildOptions options;
    options.arguments = {program.string(), "hub", "--publish", model.string(), "--port", "0", "--json"};
    Result<std::unique_ptr<ChildProcess>> process = ChildProcess::start(options);
    if (!process) return fail(process.error());
    Result<std::string> line = (*process)->wait_for_line("\"ready\"", kPatience);
    if (!line) return fail(ErrorKind::unavailable, "the hub does not start: {}", (*process)->stderr_text());
    const nlohmann::json ready = nlohmann::json::parse(*line);
    Result<http::Url> url = http::parse_url(ready.at("hub").get<std::string>());
    if (!url) return fail(url.error());
    const std::string id = ready.at("models").at(0).at("id");
    return Served{std::move(*process), url->with_target("/v1/models/" + id + "/files/0")};
}

// A port that is free at the moment: nginx cannot be asked which one it took.
Result<std::uint16_t> free_port() {
    http::ServerOptions options;
    options.listen = {"127.0.0.1", 0};
    Result<std::unique_ptr<http::Server>> server =
        http::Server::start(options, [](const http::Request&) { return http::Response{}; });
    if (!server) return fail(server.error());
    return (*server)->local_address().port;
}

std::string nginx_configuration(const std::filesystem::path& root, std::uint16_t port) {
    return fmt::format(
        "daemon off; pid {0}/pid; worker_processes 2;{2}\n"
        "events {{ worker_connections 256; }}\n"
        "http {{ access_log off; sendfile on; tcp_nopush on; keepalive_requests 1000000;\n"
        "  client_body_temp_path {0}/t1; proxy_temp_path {0}/t2; fastcgi_temp_path {0}/t3;\n"
        "  uwsgi_temp_path {0}/t4; scgi_temp_path {0}/t5;\n"
        "  server {{ listen 127.0.0.1:{1}; root {0}; }} }}\n",
        root.string(), port, ::geteuid() == 0 ? " user root;" : "");
}

Result<Served> start_nginx(const std::string& program, const std::filesystem::path& model) {
    Result<std::uint16_t> port = free_port();
    if (!port) return fail(port.error());
    const std::filesystem::path root = model.parent_path();
    const std::filesystem::path file = root / "nginx.conf";
    if (Status written = write_text_file(file, nginx_configuration(root, *port)); !written) {
        return fail(written.error());
    }
    ChildOptions options;
    options.arguments = {program, "-p", root.string(), "-c", file.string(), "-e", (root / "nginx.log").string()};
    Result<std::unique_ptr<ChildProcess>> process = ChildProcess::start(options);
    if (!process) return fail(process.error());
    Served served{std::move(*process), {false, {"127.0.0.1", *port}, "/" + model.filename().string()}};
    http::Client client{http::ClientOptions{}};
    const auto end = steady_clock::now() + kPatience;
    while (!client.call({"HEAD", served.file, {}, {}})) {
        if (!served.process->running() || steady_clock::now() > end) {
            return fail(ErrorKind::unavailable, "{} does not start: {}", program, served.process->stderr_text());
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return served;
}

// One connection's share of the file: every n-th range, received and forgotten.
Status read_ranges(const http::Url& url, std::uint64_t size, std::atomic<std::uint64_t>& next) {
    http::ClientOptions options;
    options.cancel = &interruption();
    http::Client client(options);
    ByteVector buffer(1 << 20);
    for (std::uint64_t first = next.fetch_add(kRange); first < size; first = next.fetch_add(kRange)) {
        const http::ByteRange range{first, std::min(kRange, size - first)};
        Result<http::Answer> answer = client.call({"GET", url, {{"Range", http::range_field(range)}}, {}});
        if (!answer) return fail(answer.error());
        if (answer->status != 206) return fail(ErrorKind::invalid, "{}: answered {}", url.text(), answer->status);
        for (std::uint64_t left = range.length; left > 0;) {
            Result<std::size_t> count = client.read(buffer);
            if (!count) return fail(count.error());
            left -= *count;
        }
    }
    return {};
}

// Bytes per second.
Result<double> range_speed(const http::Url& url, std::uint64_t size, int connections) {
    std::atomic<std::uint64_t> next = 0;
    std::vector<Status> outcomes(static_cast<std::size_t>(connections));
    const auto start = steady_clock::now();
    std::vector<std::thread> threads;
    for (Status& outcome : outcomes)
        threads.emplace_back([&] { outcome = read_ranges(url, size, next); });
    for (std::thread& thread : threads)
        thread.join();
    for (const Status& outcome : outcomes) {
        if (!outcome) return fail(outcome.error());
    }
    return static_cast<double>(size) / seconds_since(start);
}

Result<double> curl_speed(const http::Url& url, std::uint64_t size) {
    const auto start = steady_clock::now();
    auto process = ChildProcess::start(
        {.arguments = {"/usr/bin/curl", "-s", "-f", "-o", "/dev/null", "-r", fmt::format("0-{}", size - 1), url.text()},
         .environment = {}});
    if (!process) return fail(process.error());
    Result<int> code = (*process)->wait(kPatience);
    if (!code) return fail(code.error());
    if (*code != 0) return fail(ErrorKind::unavailable, "curl ended with {}", *code);
    return static_cast<double>(size) / seconds_since(start);
}

// The whole download: hashed, written, synced.
Result<double> fetch_speed(const Manifest& manifest, const http::Url& file, bool hub,
                           const std::filesystem::path& out) {
    std::vector<Piece> pieces;
    for (const ManifestLayer& layer : manifest.layers)
        pieces.push_back({layer.layer, 0, layer.experts});
    fetch::Source source{file.with_target("/"), std::nullopt, {}};
    if (hub) source.model = manifest.model_id();
    fetch::FetchOptions options;
    options.quiet = true;
    options.cancel = &interruption();
    Result<fetch::FetchReport> report = fetch::fetch_slice(manifest, pieces, {source}, out, options);
    std::error_code ignored;
    std::filesystem::remove(out, ignored);
    if (!report) return fail(report.error());
    return static_cast<double>(report->moved_bytes) / report->seconds;
}

struct Way {
    std::string key;    // "ranges_1"
    std::string label;  // for people
    std::function<Result<double>(bool hub)> measure;
    std::vector<double> hub = {};
    std::vector<double> nginx = {};
    std::vector<double> ratios = {};
};

// Hub and nginx in turn, so that what disturbs one disturbs the other.
Status measure(std::vector<Way>& ways, bool with_nginx) {
    for (int round = 0; round < kRounds; ++round) {
        for (Way& way : ways) {
            if (interrupted()) return fail(ErrorKind::unavailable, "interrupted");
            Result<double> hub = way.measure(true);
            if (!hub) return fail(hub.error());
            way.hub.push_back(*hub);
            if (!with_nginx) continue;
            Result<double> nginx = way.measure(false);
            if (!nginx) return fail(nginx.error());
            way.nginx.push_back(*nginx);
            way.ratios.push_back(*hub / *nginx);
        }
    }
    return {};
}

Result<std::filesystem::path> make_model(const std::filesystem::path& directory) {
    SynthSpec spec;
    spec.architecture = "qwen3moe";
    spec.layers = 4;
    spec.experts = 64;
    spec.hidden = 1024;
    spec.ff = 1024;
    spec.type = "Q4_K";
    std::filesystem::path model = directory / "model.gguf";
    SynthOptions options;
    options.cancel = &interruption();
    if (auto made = synthesize(spec, model, options); !made) return fail(made.error());
    return model;
}

}  // namespace

Result<BenchReport> bench_download(const DownloadBench& options) {
    Result<TempDirectory> directory = TempDirectory::create("kvasir-bench-");
    if (!directory) return fail(directory.error());
    Result<std::filesystem::path> model = make_model(directory->path());
    if (!model) return fail(model.error());
    const std::uint64_t size = std::filesystem::file_size(*model);
    Result<Served> hub = start_hub(options.program, *model);
    if (!hub) return fail(hub.error());
    Result<Manifest> manifest = load_manifest(manifest_path(*model));
    if (!manifest) return fail(manifest.error());
    const std::string program = options.nginx.empty() ? KVASIR_NGINX : options.nginx;
    std::optional<Served> nginx;
    if (!program.empty()) {
        Result<Served> started = start_nginx(program, *model);
        if (!started) return fail(started.error());
        nginx = std::move(*started);
    }
    const auto url = [&](bool is_hub) -> const http::Url& { return is_hub ? hub->file : nginx->file; };
    std::vector<Way> ways;
    for (const int connections : {1, 4}) {
        ways.push_back({fmt::format("ranges_{}", connections), fmt::format("ranges, {} connection(s)", connections),
                        [&, connections](bool is_hub) { return range_speed(url(is_hub), size, connections); }});
    }
    std::error_code ignored;
    if (std::filesystem::exists("/usr/bin/curl", ignored)) {
        ways.push_back({"curl", "curl, one range", [&](bool is_hub) { return curl_speed(url(is_hub), size); }});
    }
    ways.push_back({"fetch", "kvasir fetch (hashed, synced)", [&](bool is_hub) {
                        return fetch_speed(*manifest, url(is_hub), is_hub, directory->path() / "out.gguf");
                    }});
    if (Status done = measure(ways, nginx.has_value()); !done) return fail(done.error());

    BenchReport report;
    report.title = fmt::format("download: {} over loopback, ranges of {}, median of {} rounds", human_bytes(size),
                               human_bytes(kRange), kRounds);
    for (const Way& way : ways) {
        report.add(way.key + "_hub_gb_s", way.label + ": hub", quantile(way.hub, 0.5) / 1e9, "GB/s");
        if (way.nginx.empty()) continue;
        report.add(way.key + "_nginx_gb_s", way.label + ": nginx", quantile(way.nginx, 0.5) / 1e9, "GB/s");
        report.add(way.key + "_ratio", way.label + ": hub / nginx", quantile(way.ratios, 0.5), "x",
                   fmt::format("target 0.8; {:.2f} to {:.2f}", quantile(way.ratios, 0), quantile(way.ratios, 1)));
    }
    if (!nginx) report.notes.emplace_back("no nginx on this machine: there is nothing to compare with (--nginx FILE)");
    return report;
}

}  // namespace kvasir
