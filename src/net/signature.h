// Ed25519 signatures by node keys. What is signed begins with a text that names its purpose ("kvasir receipt/1"), so
// that a signature for one thing is none for another.
#pragma once

#include <array>

#include "base/bytes.h"
#include "base/result.h"
#include "net/identity.h"

namespace kvasir {

using PublicKey = std::array<std::byte, 32>;  // raw
using Signature = std::array<std::byte, 64>;

// The node id that belongs to a raw public key.
NodeId node_id(const PublicKey& key);
PublicKey public_key(const Identity& identity);

Signature sign(const Identity& identity, ByteSpan message);
bool verify(const PublicKey& key, ByteSpan message, const Signature& signature);

}  // namespace kvasir
