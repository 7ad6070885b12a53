// Challenge, answer, token: how a node shows that it has its key, and what it shows afterwards. Pure functions; time
// and randomness come from outside. A challenge and a token are authenticated by the hub's secret, so that the hub need
// not remember those it gave out.
#pragma once

#include <string>
#include <string_view>

#include "market/clock.h"
#include "market/records.h"

namespace kvasir::market {

using Nonce = std::array<std::byte, 16>;

// What a node signs to log in: "kvasir login/1" and the challenge's text.
ByteVector login_message(std::string_view challenge);

// For one node, good until `expires`. Printable.
std::string make_challenge(std::string_view secret, const NodeId& node, Instant expires, const Nonce& nonce);
// ErrorKind::invalid: not this hub's, another node's; ErrorKind::unavailable: too old.
Status check_challenge(std::string_view secret, const NodeId& node, Instant now, std::string_view challenge);

struct Token {
    NodeId node{};
    std::uint32_t generation = 0;  // the node's when it was made; a later one revokes it
    Instant expires{};
};
// Printable, without spaces: fit for an Authorization header.
std::string make_token(std::string_view secret, const Token& token);
// Whether it is revoked only the node's record can tell. ErrorKind::invalid: not this hub's; unavailable: too old.
Result<Token> check_token(std::string_view secret, Instant now, std::string_view text);

// What an owner's key signs to say that a node is its own: "kvasir owner/1" and the node's id.
ByteVector ownership_message(const NodeId& node);

}  // namespace kvasir::market
