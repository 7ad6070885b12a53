// Ed25519 signatures (RFC 8032) by node keys, made and checked by OpenSSL. What is signed begins with a text that names
// its purpose ("kvasir receipt/1"), so that a signature for one thing is none for another.
#pragma once

#include "base/bytes.h"
#include "base/result.h"
#include "net/identity.h"
#include "wire/attestation.h"

namespace kvasir {

// The node id that belongs to a raw public key.
NodeId node_id(const PublicKey& key);
PublicKey public_key(const Identity& identity);

Signature sign(const Identity& identity, ByteSpan message);
bool verify(const PublicKey& key, ByteSpan message, const Signature& signature);

}  // namespace kvasir
