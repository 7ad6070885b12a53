#include "base/hmac.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <cstdlib>

namespace kvasir {

Digest hmac_sha256(ByteSpan key, ByteSpan message) {
    Digest digest{};
    unsigned int size = digest.size();
    // Fails only without memory or SHA-256: there is no way to go on.
    if (HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
             reinterpret_cast<const unsigned char*>(message.data()), message.size(),
             reinterpret_cast<unsigned char*>(digest.data()), &size) == nullptr) {
        std::abort();
    }
    return digest;
}

bool equal_in_constant_time(const Digest& a, const Digest& b) {
    return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace kvasir
