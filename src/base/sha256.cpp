#include "base/sha256.h"

#include <openssl/evp.h>

#include <cstdlib>

namespace kvasir {
namespace {

int hex_value(char digit) {
    if (digit >= '0' && digit <= '9') return digit - '0';
    if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
    if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
    return -1;
}

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
    require(EVP_DigestInit_ex(context_->context, EVP_sha256(), nullptr));
    return digest;
}

Digest sha256(ByteSpan bytes) {
    Sha256 hash;
    hash.update(bytes);
    return hash.finish();
}

std::string to_hex(const Digest& digest) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    std::string hex;
    hex.reserve(digest.size() * 2);
    for (std::byte byte : digest) {
        hex += kDigits[std::to_integer<unsigned>(byte) >> 4];
        hex += kDigits[std::to_integer<unsigned>(byte) & 15];
    }
    return hex;
}

Result<Digest> digest_from_hex(std::string_view hex) {
    Digest digest{};
    if (hex.size() != digest.size() * 2) {
        return fail(ErrorKind::invalid, "a SHA-256 is {} hex digits, not {}", digest.size() * 2, hex.size());
    }
    for (std::size_t i = 0; i < digest.size(); ++i) {
        int high = hex_value(hex[2 * i]);
        int low = hex_value(hex[2 * i + 1]);
        if (high < 0 || low < 0) return fail(ErrorKind::invalid, "'{}' is not hexadecimal", hex.substr(2 * i, 2));
        digest[i] = static_cast<std::byte>(high * 16 + low);
    }
    return digest;
}

}  // namespace kvasir
