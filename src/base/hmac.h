// HMAC-SHA-256 (RFC 2104), and comparing without telling by the time it takes where two texts differ.
#pragma once

#include "base/sha256.h"

namespace kvasir {

Digest hmac_sha256(ByteSpan key, ByteSpan message);
bool equal_in_constant_time(const Digest& a, const Digest& b);

}  // namespace kvasir
