// An HTTP/1.1 server: keep-alive, TLS where asked for, files sent by the kernel, and nothing that a client does (or
// leaves undone) holds more than one bounded connection for a bounded time.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "http/message.h"
#include "http/tls.h"
#include "net/address.h"

namespace kvasir::http {

struct ServerOptions {
    Address listen;                                  // port 0: any
    std::optional<TlsFiles> tls;                     // none: plain HTTP
    int threads = 2;                                 // handlers and the reading of files run on these
    std::uint32_t header_bytes = 16384;              // of a request; above: 431
    std::uint32_t header_count = 100;                // fields of a request; above: 431
    std::uint64_t body_bytes = 1 << 20;              // of a request; above: 413
    std::uint32_t connections = 1024;                // in all; above: 503, and closed
    std::uint32_t per_network = 128;                 // from one IPv4 address or one half of an IPv6 one
    std::chrono::milliseconds request_time{10'000};  // for the TLS handshake, and for one request to come in whole
    std::chrono::milliseconds idle_time{60'000};     // between requests, the next one's header included
    // A client that takes less than this of an answer in so long is let go.
    std::chrono::milliseconds stall_time{30'000};
    std::uint64_t stall_bytes = 4096;
};

// Called on several threads at once; what it throws is answered with 500. It should not block for long.
using Handler = std::function<Response(const Request&)>;

struct ServerStats {
    std::uint64_t connections = 0;   // accepted so far
    std::uint64_t refused = 0;       // of these, turned away at a limit
    std::uint64_t open = 0;          // now
    std::uint64_t requests = 0;      // answered so far
    std::uint64_t body_bytes = 0;    // of answers, sent so far
    std::uint64_t kernel_bytes = 0;  // of these, without passing through this process
};

// Thread-safe.
class Server {
  public:
    // Listens and serves. ErrorKind::unavailable when the address is taken, ErrorKind::usage for one that is none of
    // this machine's, and for unusable certificates.
    static Result<std::unique_ptr<Server>> start(const ServerOptions& options, Handler handler);
    // As stop() without grace.
    ~Server();
    Server(const Server&) = delete;
    Server& operator=(const Server&) = delete;

    Address local_address() const;
    ServerStats stats() const;
    // Accepts nobody any more and closes idle connections at once; answers under way have `grace` to be finished.
    // Returns when the last is gone.
    void stop(std::chrono::milliseconds grace);

  private:
    class Core;
    explicit Server(std::unique_ptr<Core> core);
    std::unique_ptr<Core> core_;
};

}  // namespace kvasir::http
