#include "cli/server_options.h"

#include <arg.h>
#include <netdb.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string_view>

#include "base/files.h"

namespace kvasir::cli {
namespace {

// The model is named once, first: another one would be served while the swarm is that of the first.
Status check_model_options(const std::vector<std::string>& options) {
    for (const std::string& option : options) {
        for (std::string_view name : {"-m", "--model", "-mu", "--model-url", "-hf", "--hf-repo"}) {
            if (option == name) {
                return fail(ErrorKind::usage, "{}: the model is the first argument of kvasir serve, and the only one",
                            option);
            }
        }
    }
    return {};
}

// Tries to bind the port as llama-server will.
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

Status check_ports(const common_params& params) {
    if (params.reuse_port) return {};
    if (params.port < 0 || params.port > 65535) {
        return fail(ErrorKind::usage, "--port {}: a port is 0 to 65535", params.port);
    }
    for (const std::string& host : params.hostnames) {
        if (Status free = check_port(host, std::to_string(params.port)); !free) return free;
    }
    return {};
}

}  // namespace

std::vector<std::string> server_command_line(const std::filesystem::path& model,
                                             const std::vector<std::string>& options) {
    // Repacked weights would be a second copy in memory; a warm-up would read every expert of the model from disk.
    std::vector<std::string> arguments = {"kvasir-serve", "-m", model.string(), "--no-repack", "--no-warmup"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    return arguments;
}

std::vector<char*> argv_of(std::vector<std::string>& arguments) {
    std::vector<char*> pointers;
    pointers.reserve(arguments.size() + 1);
    for (std::string& argument : arguments)
        pointers.push_back(argument.data());
    pointers.push_back(nullptr);
    return pointers;
}

Status check_server_options(std::vector<std::string> options) {
    if (Status one = check_model_options(options); !one) return one;
    options.insert(options.begin(), "kvasir-serve");
    std::vector<char*> argv = argv_of(options);
    common_params params;
    params.verbosity = 0;  // llama-server itself will warn of what it merely dislikes
    if (!common_params_parse(static_cast<int>(options.size()), argv.data(), params, LLAMA_EXAMPLE_SERVER)) {
        return fail(ErrorKind::usage,
                    "llama-server does not take these options (above it says why; 'kvasir serve MODEL -- --help' lists "
                    "all it takes)");
    }
    return check_ports(params);
}

}  // namespace kvasir::cli
