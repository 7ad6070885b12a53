#include "net/signature.h"

#include <openssl/err.h>
#include <openssl/evp.h>

#include <memory>

namespace kvasir {
namespace {

using Context = std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)>;
using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;

const unsigned char* raw(ByteSpan bytes) {
    return reinterpret_cast<const unsigned char*>(bytes.data());
}

}  // namespace

Result<PublicKey> public_key(const Identity& identity) {
    PublicKey key{};
    std::size_t size = key.size();
    if (EVP_PKEY_get_raw_public_key(identity.key(), reinterpret_cast<unsigned char*>(key.data()), &size) == 1 &&
        size == key.size()) {
        return key;
    }
    ERR_clear_error();
    return fail(ErrorKind::internal, "the identity has no Ed25519 public key");
}

Result<Signature> sign(const Identity& identity, ByteSpan text) {
    Signature signature{};
    std::size_t size = signature.size();
    const Context context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
    if (context && EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, identity.key()) == 1 &&
        EVP_DigestSign(context.get(), reinterpret_cast<unsigned char*>(signature.data()), &size, raw(text),
                       text.size()) == 1 &&
        size == signature.size()) {
        return signature;
    }
    ERR_clear_error();
    return fail(ErrorKind::internal, "OpenSSL cannot sign with this identity");
}

bool is_signed(const PublicKey& key, ByteSpan text, const Signature& signature) {
    const Key checked(EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, nullptr, raw(key), key.size()), EVP_PKEY_free);
    const Context context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
    const bool good = checked && context &&
                      EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, checked.get()) == 1 &&
                      EVP_DigestVerify(context.get(), raw(signature), signature.size(), raw(text), text.size()) == 1;
    ERR_clear_error();
    return good;
}

}  // namespace kvasir
