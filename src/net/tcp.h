// What connector and listener share: an established socket becomes a Connection. Internal to net/.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "net/channel.h"
#include "net/connection.h"

namespace kvasir {

using Tcp = boost::asio::ip::tcp;
using Deadline = std::chrono::steady_clock::time_point;

// A socket whose channel has completed its handshake.
struct Established {
    Tcp::socket socket;
    std::unique_ptr<Channel> channel;
};

// Completes a channel's handshake. Kept alive by its own pending operations alone: it goes when it is done, when
// cancelled, at the deadline, or with the io_context.
class Handshake {
  public:
    using Done = std::function<void(Result<Established>)>;
    virtual ~Handshake() = default;

    // `done` is called once, on an io thread, unless the io_context goes first.
    static std::shared_ptr<Handshake> start(Established unfinished, Deadline deadline, Done done);
    // Thread-safe; `done` gets an error.
    virtual void cancel() = 0;
};

ConnectionPtr make_connection(Established established, const ConnectionOptions& options);

// Nonblocking, without Nagle's delay.
boost::system::error_code prepare_socket(Tcp::socket& socket);

// 127.0.0.1 for ::ffff:127.0.0.1.
Tcp::endpoint plain_endpoint(const Tcp::endpoint& endpoint);
bool is_loopback(const Tcp::endpoint& endpoint);
// "127.0.0.1:7411", "[::1]:7411".
std::string endpoint_text(const Tcp::endpoint& endpoint);
// The endpoint of a literal IP address; the error code is set for anything else.
Tcp::endpoint literal_endpoint(const Address& address, boost::system::error_code& error);

}  // namespace kvasir
