#include "backbone/dispatcher.h"

namespace kvasir {
namespace {

bool is_loopback(const std::string& host) {
    return host == "localhost" || host == "::1" || host.starts_with("127.");
}

}  // namespace

Result<WorkerEndpoint> parse_worker(std::string_view text, bool insecure) {
    std::size_t mark = text.find('#');
    Result<Address> address = parse_address(text.substr(0, mark), kDefaultWorkerPort);
    if (!address) return fail(address.error().within(fmt::format("worker '{}'", text)));
    if (address->host.empty()) {
        return fail(ErrorKind::usage, "worker '{}': no host; write HOST:PORT#NODEID", text);
    }
    if (address->port == 0) return fail(ErrorKind::usage, "worker '{}': port 0 can't be connected to", text);
    WorkerEndpoint endpoint{*address, std::nullopt};
    if (mark == std::string_view::npos) {
        if (!insecure) {
            return fail(ErrorKind::usage,
                        "worker '{}' lacks its node id: write HOST:PORT#NODEID (the worker prints it when it starts), "
                        "or allow connections without TLS on this machine with --insecure-loopback",
                        text);
        }
        if (!is_loopback(address->host)) {
            return fail(ErrorKind::usage, "worker '{}': without a node id only loopback addresses are allowed", text);
        }
        return endpoint;
    }
    Result<Digest> id = digest_from_hex(text.substr(mark + 1));
    if (!id) return fail(ErrorKind::usage, "worker '{}': its node id must be 64 hex digits", text);
    endpoint.id = *id;
    return endpoint;
}

}  // namespace kvasir
