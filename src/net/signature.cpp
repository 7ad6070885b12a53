#include "net/signature.h"

#include <openssl/err.h>
#include <openssl/evp.h>

#include <cstdlib>

namespace kvasir {
namespace {

using KeyPtr = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;
using ContextPtr = std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)>;

const unsigned char* raw(const std::byte* bytes) {
    return reinterpret_cast<const unsigned char*>(bytes);
}

// Fails only without memory: there is no way to go on.
void require(bool succeeded) {
    if (!succeeded) std::abort();
}

}  // namespace

NodeId node_id(const PublicKey& key) {
    return sha256(key);
}

PublicKey public_key(const Identity& identity) {
    PublicKey key{};
    std::size_t size = key.size();
    require(EVP_PKEY_get_raw_public_key(identity.key(), reinterpret_cast<unsigned char*>(key.data()), &size) == 1);
    return key;
}

Signature sign(const Identity& identity, ByteSpan message) {
    ContextPtr context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
    Signature signature{};
    std::size_t size = signature.size();
    require(context && EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, identity.key()) == 1 &&
            EVP_DigestSign(context.get(), reinterpret_cast<unsigned char*>(signature.data()), &size,
                           raw(message.data()), message.size()) == 1);
    return signature;
}

bool verify(const PublicKey& key, ByteSpan message, const Signature& signature) {
    KeyPtr parsed(EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, nullptr, raw(key.data()), key.size()), EVP_PKEY_free);
    ContextPtr context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
    bool good =
        parsed && context && EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, parsed.get()) == 1 &&
        EVP_DigestVerify(context.get(), raw(signature.data()), signature.size(), raw(message.data()), message.size()) ==
            1;
    ERR_clear_error();
    return good;
}

}  // namespace kvasir
