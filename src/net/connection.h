// Frames over a TCP connection, with TLS 1.3 (both ends authenticated by node id) or, by explicit choice and only on
// loopback, without.
#pragma once

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "net/address.h"
#include "net/identity.h"
#include "wire/frame.h"

namespace kvasir {

// Deadlines and bounds of a connection; the defaults are the protocol's.
struct ConnectionOptions {
    std::chrono::milliseconds handshake{10000};  // listener: the whole TLS handshake
    std::chrono::milliseconds stall{60000};      // a frame half received or half sent makes no progress for so long
    std::chrono::milliseconds flush{2000};       // close(): for what is queued, and for the peer to close as well
    std::uint64_t send_queue_limit = 2 * kPayloadLimit;
};

// One connection, alive while somebody holds it or it is open and started. All members are thread-safe; handlers run
// on the io_context's threads, one at a time per connection. Nobody may hold it longer than its io_context lives.
class Connection {
  public:
    using FrameHandler = std::function<void(Frame&&)>;
    using CloseHandler = std::function<void(const Error&)>;

    virtual ~Connection() = default;

    // Begins reading; call once. `on_close` is called exactly once, with why: never from inside a call of this class,
    // and not at all if the io_context goes first. Both handlers are released then.
    virtual void start(FrameHandler on_frame, CloseHandler on_close) = 0;
    // Sends a frame: what the socket takes at once goes out on the caller's thread, the rest is queued. False if the
    // connection is closed or closing, or more than the send-queue limit waits.
    virtual bool send(Frame frame) = 0;
    // Ends the connection after what is queued was sent, or after 2 s. Frames that arrive meanwhile are dropped.
    virtual void close(Error reason) = 0;
    // The bound on compute and result payloads it accepts; kControlPayloadLimit until raised after the handshake.
    virtual void set_payload_limit(std::uint64_t limit) = 0;

    // The other end's id; none without TLS.
    virtual std::optional<NodeId> peer() const = 0;
    virtual std::string peer_address() const = 0;
    virtual std::uint64_t bytes_sent() const = 0;  // on the wire below TLS not counted: frames only
    virtual std::uint64_t bytes_received() const = 0;
};

using ConnectionPtr = std::shared_ptr<Connection>;

// Connects, dual-stack, and completes the TLS handshake within `timeout`. With `identity` null the connection is
// without TLS, and any address but loopback is refused. The peer's id must be `expected` (required with TLS).
// Calls `handler` once, on an io thread. Errors: ErrorKind::unavailable for what may pass (refused, timed out, closed);
// mismatch for a peer with another id than `expected`; usage for what the caller must change.
// TLS 1.3 completes on this end before the other has judged this node's id: a peer that does not admit it ends the
// connection right after, with ErrorKind::usage and a text that names the id.
void connect(boost::asio::io_context& context, const Address& address, const std::shared_ptr<const Identity>& identity,
             const std::optional<NodeId>& expected, std::chrono::milliseconds timeout,
             std::function<void(Result<ConnectionPtr>)> handler, const ConnectionOptions& options = {});

// At most so many connections may be in their handshake with one listener.
inline constexpr std::size_t kMaximumHandshakes = 64;
// … and so many from one address (IPv6: from one /64 network), so that one peer cannot keep the others out.
inline constexpr std::size_t kMaximumHandshakesPerPeer = 16;

// Accepts connections until destroyed. A peer that does not finish its handshake in 10 s is dropped; more than
// `kMaximumHandshakes` unfinished ones at once are refused, and `kMaximumHandshakesPerPeer` from one address.
class Listener {
  public:
    using AcceptHandler = std::function<void(ConnectionPtr)>;
    // Whether a peer of this id may connect; one that may not gets a TLS alert. Called on an io thread.
    using Admission = std::function<bool(const NodeId&)>;

    // A port that is taken is ErrorKind::unavailable and says so. Without `identity`: no TLS, loopback only.
    static Result<std::unique_ptr<Listener>> create(boost::asio::io_context& context, const Address& address,
                                                    const std::shared_ptr<const Identity>& identity, Admission admit,
                                                    AcceptHandler on_connection, const ConnectionOptions& options = {});
    virtual ~Listener() = default;
    // The address really bound (port 0 resolved).
    virtual Address local_address() const = 0;
    // Frees the port, drops connections still in their handshake, releases the handlers. A handler that is running on
    // another thread meanwhile runs to its end. Connections handed over live on.
    virtual void stop() = 0;
};

}  // namespace kvasir
