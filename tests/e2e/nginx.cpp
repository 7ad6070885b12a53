#include "e2e/nginx.h"

#include <fmt/format.h>

#include <csignal>
#include <fstream>
#include <stdexcept>
#include <thread>

#include "base/files.h"
#include "e2e/cluster.h"
#include "e2e/http.h"

namespace kvasir::e2e {
namespace {

// Everything it writes stays in its own directory.
std::string configuration(const std::filesystem::path& own, const std::filesystem::path& root, std::uint16_t port) {
    return fmt::format(
        "daemon off;\n"
        "master_process off;\n"
        "pid {0}/pid;\n"
        "error_log {0}/error.log;\n"
        "events {{ worker_connections 256; }}\n"
        "http {{\n"
        "  log_format sizes '$status $body_bytes_sent';\n"
        "  access_log {0}/access.log sizes;\n"
        "  client_body_temp_path {0}/body;\n"
        "  proxy_temp_path {0}/proxy;\n"
        "  fastcgi_temp_path {0}/fastcgi;\n"
        "  uwsgi_temp_path {0}/uwsgi;\n"
        "  scgi_temp_path {0}/scgi;\n"
        "  sendfile on;\n"
        "  server {{ listen 127.0.0.1:{2}; root {1}; }}\n"
        "}}\n",
        own.string(), root.string(), port);
}

}  // namespace

bool Nginx::available() {
    return !std::string(KVASIR_NGINX).empty();
}

Nginx::Nginx(const std::filesystem::path& root)
    : directory_(TempDirectory::create("kvasir-nginx-").value()), port_(free_port()) {
    const std::filesystem::path file = directory_.path() / "nginx.conf";
    if (!write_text_file(file, configuration(directory_.path(), root, port_))) {
        throw std::runtime_error("cannot write nginx's configuration");
    }
    ChildOptions options;
    options.arguments = {KVASIR_NGINX,
                         "-p",
                         directory_.path().string(),
                         "-c",
                         file.string(),
                         "-e",
                         (directory_.path() / "error.log").string()};
    process_ = ChildProcess::start(options).value();
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (http_get(port_, "/").status == 0) {
        if (!process_->running() || std::chrono::steady_clock::now() > end) {
            throw std::runtime_error("nginx does not start: " + process_->stderr_text());
        }
        std::this_thread::yield();
    }
}

Nginx::~Nginx() = default;

std::string Nginx::url() const {
    return fmt::format("http://127.0.0.1:{}/", port_);
}

Nginx::Served Nginx::stop_and_count() {
    process_->signal(SIGQUIT);
    process_->wait(kPatience).value();
    std::ifstream log(directory_.path() / "access.log");
    Served served;
    unsigned status = 0;
    std::uint64_t bytes = 0;
    while (log >> status >> bytes) {
        if (status != 206) continue;  // those of the constructor
        ++served.requests;
        served.body_bytes += bytes;
    }
    return served;
}

}  // namespace kvasir::e2e
