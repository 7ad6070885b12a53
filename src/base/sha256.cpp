#include "base/sha256.h"

#include <openssl/evp.h>

#include <algorithm>
#include <cstdlib>

#include "base/hex.h"

namespace kvasir {
namespace {

// OpenSSL's digests fail only when it has no memory or no SHA-256; there is no way to go on without either.
void require(int succeeded) {
    if (succeeded != 1) std::abort();
}

}  // namespace

struct Sha256::Context {
    EVP_MD_CTX* context = EVP_MD_CTX_new();
    ~Context() { EVP_MD_CTX_free(context); }
};

Sha256::Sha256() : context_(std::make_unique<Context>()) {
    require(EVP_DigestInit_ex(context_->context, EVP_sha256(), nullptr));
}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::update(ByteSpan bytes) {
    require(EVP_DigestUpdate(context_->context, bytes.data(), bytes.size()));
}

Digest Sha256::finish() {
    Digest digest{};
    require(EVP_DigestFinal_ex(context_->context, reinterpret_cast<unsigned char*>(digest.data()), nullptr));
    require(EVP_DigestInit_ex(context_->context, nullptr, nullptr));  // naming the algorithm again would look it up
    return digest;
}

Digest sha256(ByteSpan bytes) {
    return sha256({bytes});
}

Digest sha256(std::initializer_list<ByteSpan> parts) {
    // Making a context and looking the algorithm up cost as much as hashing some kilobytes.
    thread_local Sha256 hash;
    for (ByteSpan part : parts)
        hash.update(part);
    return hash.finish();
}

std::string to_hex(const Digest& digest) {
    return hex(digest);
}

Result<Digest> digest_from_hex(std::string_view digits) {
    Digest digest{};
    if (digits.size() != digest.size() * 2) {
        return fail(ErrorKind::invalid, "a SHA-256 is {} hex digits, not {}", digest.size() * 2, digits.size());
    }
    Result<ByteVector> bytes = bytes_from_hex(digits);
    if (!bytes) return fail(bytes.error());
    std::copy(bytes->begin(), bytes->end(), digest.begin());
    return digest;
}

}  // namespace kvasir
