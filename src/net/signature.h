// Ed25519 signatures (RFC 8032) with a node's key, made and checked by OpenSSL.
#pragma once

#include "base/bytes.h"
#include "base/result.h"
#include "net/identity.h"
#include "wire/attestation.h"

namespace kvasir {

Result<PublicKey> public_key(const Identity& identity);

Result<Signature> sign(const Identity& identity, ByteSpan text);

// False for anything but a signature of exactly this text with this key's private half.
bool is_signed(const PublicKey& key, ByteSpan text, const Signature& signature);

}  // namespace kvasir
