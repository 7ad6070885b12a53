// From an OpenSSL key to a node id.
#pragma once

#include "base/result.h"
#include "wire/messages.h"

using EVP_PKEY = struct evp_pkey_st;

namespace kvasir {

// SHA-256 of the raw public key; anything but an Ed25519 key is ErrorKind::invalid. `key` may be null.
Result<NodeId> public_key_id(EVP_PKEY* key);

}  // namespace kvasir
