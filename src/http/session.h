// One connection of a server. Internal to http/.
#pragma once

#include <atomic>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <memory>
#include <string>

#include "http/server.h"

namespace kvasir::http {

// What all sessions of a server share; it outlives them.
struct SessionShare {
    ServerOptions options;
    Handler handler;
    TlsContextPtr tls;  // null: plain
    std::atomic<bool> stopping = false;
    std::atomic<std::uint64_t> requests = 0;
    std::atomic<std::uint64_t> body_bytes = 0;
    std::atomic<std::uint64_t> kernel_bytes = 0;
};

// Kept alive by its own pending operations, all of which have a deadline.
class Session {
  public:
    virtual ~Session() = default;
    virtual void start() = 0;
    // Thread-safe: closes the connection if no request is being answered, else after the answer.
    virtual void finish() = 0;
    // Thread-safe.
    virtual void close() = 0;
};

struct Peer {
    std::string address;  // "127.0.0.1:40512"
    std::string network;
};

// `socket`'s executor must be a strand. `gone` is called once, when the session has ended.
std::shared_ptr<Session> make_session(boost::asio::ip::tcp::socket socket, Peer peer, SessionShare& share,
                                      std::function<void()> gone);

}  // namespace kvasir::http
