// SHA-256 (FIPS 180-4), computed by OpenSSL, which uses the processor's SHA extensions where there are any.
#pragma once

#include <array>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/result.h"

namespace kvasir {

using Digest = std::array<std::byte, 32>;

// 64 lower-case hex digits.
std::string to_hex(const Digest& digest);
// Accepts exactly 64 hex digits of either case.
Result<Digest> digest_from_hex(std::string_view digits);

Digest sha256(ByteSpan bytes);
// Of the parts, one after the other.
Digest sha256(std::initializer_list<ByteSpan> parts);

// Hashes a stream piece by piece.
class Sha256 {
  public:
    Sha256();
    ~Sha256();
    Sha256(Sha256&&) noexcept;
    Sha256& operator=(Sha256&&) noexcept;

    void update(ByteSpan bytes);
    // The digest of everything so far; the object then starts over.
    Digest finish();

  private:
    struct Context;
    std::unique_ptr<Context> context_;
};

}  // namespace kvasir
