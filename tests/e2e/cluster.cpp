#include "e2e/cluster.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <regex>
#include <stdexcept>

namespace kvasir::e2e {
namespace {

const std::filesystem::path kModel = std::filesystem::path(KVASIR_MODELS) / "kvasir-tales-q4_k_m.gguf";

std::string must(const Outcome& outcome, const std::string& what) {
    if (outcome.exit_code != 0) throw std::runtime_error(fmt::format("{}: {}{}", what, outcome.out, outcome.err));
    return outcome.out;
}

TempDirectory make_directory() {
    Result<TempDirectory> directory = TempDirectory::create("kvasir-e2e-");
    if (!directory) throw std::runtime_error(directory.error().message);
    return std::move(*directory);
}

}  // namespace

Outcome run(std::vector<std::string> arguments, std::vector<std::string> environment, std::chrono::seconds patience) {
    auto child = ChildProcess::start({.arguments = arguments, .environment = std::move(environment)});
    if (!child) throw std::runtime_error(child.error().message);
    Result<int> code = (*child)->wait(patience);
    if (!code) {
        throw std::runtime_error(fmt::format("{}: {}\n{}\n{}", fmt::join(arguments, " "), code.error().message,
                                             (*child)->stdout_text(), (*child)->stderr_text()));
    }
    return {*code, (*child)->stdout_text(), (*child)->stderr_text()};
}

Outcome kvasir(std::vector<std::string> arguments, std::vector<std::string> environment) {
    arguments.insert(arguments.begin(), KVASIR_PROGRAM);
    return run(std::move(arguments), std::move(environment));
}

std::string Worker::endpoint() const {
    return endpoint_through(port);
}
std::string Worker::endpoint_through(std::uint16_t other_port) const {
    return fmt::format("127.0.0.1:{}#{}", other_port, id);
}

Cluster::Cluster() : directory_(make_directory()) {
    std::filesystem::create_symlink(kModel, model());
    must(kvasir({"publish", model().string(), "--threads", "1"}), "publish");
    backbone_id_ = identity("backbone");
}

std::filesystem::path Cluster::slice(const std::string& name, const std::string& layers,
                                     const std::string& experts) const {
    std::filesystem::path out = path(name + ".gguf");
    must(kvasir({"slice", model().string(), "--layers", layers, "--experts", experts, "-o", out.string()}), "slice");
    return out;
}

std::string Cluster::identity(const std::string& name) const {
    std::string out = must(kvasir({"identity", "--file", path(name + ".pem").string()}), "identity");
    std::smatch match;
    if (!std::regex_search(out, match, std::regex("[0-9a-f]{64}"))) throw std::runtime_error("no node id in: " + out);
    return match.str();
}

Worker Cluster::start_worker(const std::string& name, const std::vector<std::filesystem::path>& slices,
                             std::uint16_t port, std::vector<std::string> more) const {
    Worker worker;
    worker.id = identity(name);
    std::vector<std::string> arguments = {
        KVASIR_PROGRAM, "worker", "--identity", path(name + ".pem").string(),     "--admit", backbone_id_,
        "--threads",    "1",      "--listen",   fmt::format("127.0.0.1:{}", port)};
    for (const auto& slice : slices) {
        arguments.emplace_back("--slice");
        arguments.push_back(slice.string());
    }
    arguments.insert(arguments.end(), more.begin(), more.end());
    auto process = ChildProcess::start({.arguments = arguments, .environment = {}});
    if (!process) throw std::runtime_error(process.error().message);
    worker.process = std::move(*process);
    Result<std::string> line = worker.process->wait_for_line("ready", kPatience);
    if (!line) throw std::runtime_error(line.error().message);
    std::smatch match;
    if (!std::regex_search(*line, match, std::regex("127\\.0\\.0\\.1:([0-9]+)"))) {
        throw std::runtime_error("no port in: " + *line);
    }
    worker.port = static_cast<std::uint16_t>(std::stoi(match[1].str()));
    return worker;
}

std::vector<std::string> Cluster::backbone_arguments(const std::vector<std::string>& endpoints) const {
    std::vector<std::string> arguments = {"--identity", backbone_identity().string()};
    for (const std::string& endpoint : endpoints) {
        arguments.emplace_back("--worker");
        arguments.push_back(endpoint);
    }
    return arguments;
}

std::uint16_t free_port() {
    int socket = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    bool bound = ::bind(socket, reinterpret_cast<sockaddr*>(&address), length) == 0 &&
                 ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length) == 0;
    ::close(socket);
    if (!bound) throw std::runtime_error("no free port");
    return ntohs(address.sin_port);
}

}  // namespace kvasir::e2e
