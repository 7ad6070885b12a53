// TLS 1.3 between nodes: both ends show a certificate signed with their own Ed25519 key, and are known by that key
// alone. Internal to net/.
#pragma once

#include <functional>
#include <memory>

#include "net/channel.h"
#include "net/identity.h"

using SSL_CTX = struct ssl_ctx_st;

namespace kvasir {

// What one end offers in every handshake. Immutable; thread-safe.
class TlsContext {
  public:
    static Result<TlsContext> create(const Identity& identity);

    // The connecting end of `socket`; the peer's id must be `expected`.
    Result<std::unique_ptr<Channel>> connecting(int socket, const NodeId& expected) const;
    // The listening end; `admit` is called once, from handshake(), with the id that the peer claims (it proves right
    // after that it holds the key, or the handshake fails).
    Result<std::unique_ptr<Channel>> accepting(int socket, std::function<bool(const NodeId&)> admit) const;

  private:
    std::shared_ptr<SSL_CTX> context_;
    NodeId id_{};
};

}  // namespace kvasir
