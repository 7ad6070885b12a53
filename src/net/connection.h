// Frames over a TCP connection, with TLS 1.3 (both ends authenticated by node id) or, by explicit choice and only on
// loopback, without.
#pragma once

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "net/address.h"
#include "net/identity.h"
#include "wire/frame.h"

namespace kvasir {

// One connection, alive while somebody holds it or an operation is pending. All members are thread-safe; handlers run
// on the io_context's threads, one at a time per connection.
class Connection {
  public:
    using FrameHandler = std::function<void(Frame&&)>;
    using CloseHandler = std::function<void(const Error&)>;

    virtual ~Connection() = default;

    // Begins reading. `on_close` is called exactly once, with why. Both handlers are released then.
    virtual void start(FrameHandler on_frame, CloseHandler on_close) = 0;
    // Queues a frame. False if the connection is closed, or more than the send-queue limit (2 × kPayloadLimit) waits.
    virtual bool send(Frame frame) = 0;
    // Ends the connection after what is queued was sent, or after 2 s.
    virtual void close(Error reason) = 0;
    // The bound on compute and result payloads it accepts; kControlPayloadLimit until raised after the handshake.
    virtual void set_payload_limit(std::uint64_t limit) = 0;

    // The other end's id; none without TLS.
    virtual std::optional<NodeId> peer() const = 0;
    virtual std::string peer_address() const = 0;
    virtual std::uint64_t bytes_sent() const = 0;      // on the wire below TLS not counted: frames only
    virtual std::uint64_t bytes_received() const = 0;
};

using ConnectionPtr = std::shared_ptr<Connection>;

// Connects, dual-stack, and completes the TLS handshake within `timeout`. With `identity` null the connection is
// without TLS, and any address but loopback is refused. The peer's id must be `expected`.
void connect(boost::asio::io_context& context, const Address& address, std::shared_ptr<const Identity> identity,
             std::optional<NodeId> expected, std::chrono::milliseconds timeout,
             std::function<void(Result<ConnectionPtr>)> handler);

// Accepts connections until destroyed. A peer that does not finish its handshake in 10 s is dropped; more than
// `kMaximumHandshakes` (64) unfinished ones at once are refused.
class Listener {
  public:
    using AcceptHandler = std::function<void(ConnectionPtr)>;
    // Whether a peer of this id may connect; one that may not gets a TLS alert. Called on an io thread.
    using Admission = std::function<bool(const NodeId&)>;

    // A port that is taken is ErrorKind::unavailable and says so. Without `identity`: no TLS, loopback only.
    static Result<std::unique_ptr<Listener>> create(boost::asio::io_context& context, const Address& address,
                                                    std::shared_ptr<const Identity> identity, Admission admit,
                                                    AcceptHandler on_connection);
    virtual ~Listener() = default;
    // The address really bound (port 0 resolved).
    virtual Address local_address() const = 0;
    virtual void stop() = 0;
};

}  // namespace kvasir
