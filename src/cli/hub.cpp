// kvasir hub: models published over HTTP.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/interrupt.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/stop_signals.h"
#include "http/server.h"
#include "hub/range_files.h"

namespace kvasir::cli {
namespace {

constexpr std::uint16_t kDefaultPort = 7410;

constexpr const char* kFooter =
    "Serves manifests and byte ranges of the models' own files: a worker downloads the experts it holds, and nothing\n"
    "else (kvasir fetch). A model without a manifest is hashed first. With --mirror, workers also ask that web "
    "server,\n"
    "which needs nothing but the same files in one directory; a manifest alone (MODEL.kvasir.json) with a mirror "
    "makes\n"
    "a hub that holds no weights. It prints a line with 'ready' once it serves, and finishes politely on SIGTERM or\n"
    "Ctrl-C. Every slab is hashed by whoever downloads it: TLS keeps names and sizes private, not weights correct.\n"
    "Examples:\n"
    "  kvasir hub --publish model.gguf                                this machine only\n"
    "  kvasir hub --publish a.gguf b.gguf --listen :7410 --data hub   all interfaces\n"
    "  kvasir hub --publish model.gguf --listen :443 --tls-cert chain.pem --tls-key key.pem\n"
    "  kvasir hub --publish model.gguf --listen :7410 --data hub --self-signed      prints the pin to hand out\n"
    "  kvasir hub --publish model.gguf.kvasir.json --mirror https://files.example/models/";

struct Flags {
    std::vector<std::filesystem::path> publish;
    std::vector<std::string> mirrors;
    std::string listen;
    int port = -1;
    std::filesystem::path data;
    std::filesystem::path tls_cert;
    std::filesystem::path tls_key;
    bool self_signed = false;
    int threads = 0;
    int connections = 1024;
    int drain_seconds = 10;
    bool json = false;
};

Result<Address> listen_address(const Flags& flags) {
    if (flags.port >= 0 && !flags.listen.empty()) return fail(ErrorKind::usage, "--port is a part of --listen");
    if (flags.port >= 0) return Address{"127.0.0.1", static_cast<std::uint16_t>(flags.port)};
    Result<Address> address = parse_address(flags.listen.empty() ? "127.0.0.1" : flags.listen, kDefaultPort);
    if (!address) return fail(address.error().within("--listen"));
    return address;
}

Status make_data_directory(const std::filesystem::path& data) {
    if (data.empty()) return {};
    std::error_code error;
    std::filesystem::create_directories(data, error);
    if (!error) return {};
    return fail(ErrorKind::io, "--data: cannot make the directory {}: {}", data.string(), error.message());
}

Result<std::optional<http::TlsFiles>> tls_files(const Flags& flags) {
    if (flags.tls_cert.empty() != flags.tls_key.empty()) {
        return fail(ErrorKind::usage, "--tls-cert and --tls-key go together");
    }
    if (!flags.tls_cert.empty()) {
        if (flags.self_signed) return fail(ErrorKind::usage, "--self-signed makes its own certificate: no --tls-cert");
        return http::TlsFiles{flags.tls_cert, flags.tls_key};
    }
    if (!flags.self_signed) return std::nullopt;
    if (flags.data.empty()) return fail(ErrorKind::usage, "--self-signed keeps its key in --data: name a directory");
    const std::filesystem::path pem = flags.data / "hub-tls.pem";
    if (Status made = http::make_self_signed(pem); !made) return fail(made.error());
    return http::TlsFiles{pem, pem};
}

// "https://127.0.0.1:7410#PIN": what --hub takes elsewhere.
std::string hub_url(const Flags& flags, const Address& local, const std::optional<Digest>& pin) {
    const bool everywhere = local.host == "::" || local.host == "0.0.0.0";
    const std::string address = everywhere ? fmt::format("HOST:{}", local.port) : local.text();
    const bool secure = flags.self_signed || !flags.tls_cert.empty();
    const bool shown = pin.has_value() && flags.self_signed;
    return fmt::format("{}://{}{}", secure ? "https" : "http", address, shown ? "#" + to_hex(*pin) : "");
}

void print_ready(const Flags& flags, const hub::Catalogue& catalogue, const Address& local, const std::string& url) {
    if (flags.json) {
        nlohmann::ordered_json models = nlohmann::ordered_json::array();
        for (const hub::PublishedModel& model : catalogue.models())
            models.push_back({{"id", to_hex(model.id)}, {"name", model.manifest.name}});
        const nlohmann::ordered_json line = {
            {"ready", true}, {"address", local.text()}, {"hub", url}, {"models", std::move(models)}};
        fmt::print("{}\n", line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
    } else {
        for (const hub::PublishedModel& model : catalogue.models()) {
            fmt::print("model      {}  {}{}\n", to_hex(model.id), model.manifest.name,
                       model.files.empty() ? " (its files are on mirrors)" : "");
        }
        fmt::print("ready: listening on {}; kvasir fetch takes --hub {}\n", local.text(), url);
    }
    std::fflush(stdout);
}

Status fill(hub::Catalogue& catalogue, const Flags& flags) {
    hub::PublishSettings settings{flags.mirrors, flags.data, &interruption()};
    for (const std::filesystem::path& path : flags.publish) {
        if (Status added = catalogue.add(path, settings); !added) return added;
    }
    return {};
}

Result<int> serve(const Flags& flags, const hub::Catalogue& catalogue) {
    http::ServerOptions options;
    Result<Address> address = listen_address(flags);
    if (!address) return fail(address.error());
    options.listen = *address;
    Result<std::optional<http::TlsFiles>> tls = tls_files(flags);
    if (!tls) return fail(tls.error());
    options.tls = *tls;
    std::optional<Digest> pin;
    if (options.tls) {
        Result<Digest> made = http::pin_of(options.tls->certificates);
        if (!made) return fail(made.error());
        pin = *made;
    }
    if (flags.threads > 0) options.threads = flags.threads;
    options.connections = static_cast<std::uint32_t>(flags.connections);
    http::Router router;
    hub::add_catalogue_routes(router, catalogue);
    const StopSignals signals;
    Result<std::unique_ptr<http::Server>> server =
        http::Server::start(options, [&router](const http::Request& request) { return router.answer(request); });
    if (!server) return fail(server.error());
    const Address local = (*server)->local_address();
    print_ready(flags, catalogue, local, hub_url(flags, local, pin));
    while (!signals.wait(std::chrono::seconds(3600))) {
    }
    signals.release();
    (*server)->stop(std::chrono::seconds(flags.drain_seconds));
    const http::ServerStats stats = (*server)->stats();
    fmt::print(
        "stopped: {} requests answered, {} bytes sent ({} of them straight from files), {} connections, {} "
        "turned away\n",
        stats.requests, stats.body_bytes, stats.kernel_bytes, stats.connections, stats.refused);
    return 0;
}

Result<int> run(const Flags& flags) {
    if (Status made = make_data_directory(flags.data); !made) return fail(made.error());
    hub::Catalogue catalogue;
    // Hashing may take minutes and can be taken up where a signal ended it.
    Result<int> filled = interruptibly(
        [&]() -> Result<int> {
            if (Status done = fill(catalogue, flags); !done) return fail(done.error());
            return 0;
        },
        "run the same command again to go on where it ended");
    if (!filled || *filled != 0) return filled;
    return serve(flags, catalogue);
}

}  // namespace

void add_hub(CLI::App& app, Action& action) {
    auto flags = std::make_shared<Flags>();
    CLI::App* command = app.add_subcommand("hub", "Publish models: manifests, and byte ranges of their files, by HTTP");
    command->footer(kFooter);
    command->add_option("--publish", flags->publish, "Models, or manifests whose files are on mirrors")
        ->required()
        ->type_name("FILE");
    command->add_option("--mirror", flags->mirrors, "URL of a directory that has the same files (repeatable)")
        ->allow_extra_args(false)
        ->type_name("URL");
    command->add_option("--listen", flags->listen, "Where to listen (default: 127.0.0.1:7410); ':7410': all interfaces")
        ->type_name("ADDR");
    command->add_option("--port", flags->port, "The port on 127.0.0.1; 0: any")
        ->check(CLI::Range(0, 65535))
        ->type_name("N");
    command->add_option("--data", flags->data, "The hub's own directory: its TLS key, and manifests it has to make")
        ->type_name("DIR");
    command->add_option("--tls-cert", flags->tls_cert, "Serve https with this certificate chain (PEM)")
        ->type_name("FILE");
    command->add_option("--tls-key", flags->tls_key, "Its key (PEM, no password)")->type_name("FILE");
    command->add_flag("--self-signed", flags->self_signed, "Serve https with a key of its own, to be pinned");
    command->add_option("--threads", flags->threads, "Threads that answer (default: 2)")
        ->check(CLI::Range(1, 256))
        ->type_name("N");
    command->add_option("--connections", flags->connections, "The most connections at once")
        ->check(CLI::Range(1, 1000000))
        ->capture_default_str()
        ->type_name("N");
    command->add_option("--drain-seconds", flags->drain_seconds, "The most time to finish answers when told to stop")
        ->check(CLI::Range(0, 3600))
        ->capture_default_str()
        ->type_name("S");
    command->add_flag("--json", flags->json, "Print the ready line as JSON");
    command->callback([flags, &action] { action = [flags] { return run(*flags); }; });
}

}  // namespace kvasir::cli
