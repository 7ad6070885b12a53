// A byte stream over a connected, nonblocking socket, with TLS or without. Internal to net/.
#pragma once

#include <memory>
#include <optional>
#include <span>

#include "base/bytes.h"
#include "base/result.h"
#include "wire/messages.h"

namespace kvasir {

enum class IoState {
    done,
    want_read,   // call again once the socket is readable
    want_write,  // … writable
    closed,      // the peer ended it; error() says so
    failed,      // error() says why
};

struct IoResult {
    IoState state = IoState::done;
    std::size_t bytes = 0;  // with `done`: more than 0
};

// Does not own the socket. Not thread-safe; none of its calls waits.
class Channel {
  public:
    virtual ~Channel() = default;

    virtual IoState handshake() = 0;
    // Reads at least one byte into `into`, which must not be empty.
    virtual IoResult read(std::span<std::byte> into) = 0;
    // Takes a part of `head` followed by `body`, not both empty; some of it may stay in a (small) buffer of its own.
    virtual IoResult write(ByteSpan head, ByteSpan body) = 0;
    // Sends what write() kept.
    virtual IoState flush() = 0;
    // Tells the peer that nothing follows, as far as that needs no wait.
    virtual void finish() = 0;

    virtual std::optional<NodeId> peer() const = 0;
    // Whether the bytes are protected against change on the way.
    virtual bool secure() const = 0;
    const Error& error() const { return error_; }

  protected:
    Error error_{ErrorKind::internal, "no error"};
};

std::unique_ptr<Channel> make_plain_channel(int socket);

inline Error closed_by_peer() {
    return {ErrorKind::unavailable, "the peer closed the connection"};
}

}  // namespace kvasir
