#include "base/hmac.h"

#include <gtest/gtest.h>

namespace kvasir {
namespace {

ByteSpan bytes(std::string_view text) {
    return std::as_bytes(std::span(text));
}

TEST(HmacTest, AgreesWithTheRfcsVectors) {
    // RFC 4231, test cases 2 and 1.
    EXPECT_EQ(to_hex(hmac_sha256(bytes("Jefe"), bytes("what do ya want for nothing?"))),
              "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    EXPECT_EQ(to_hex(hmac_sha256(bytes(std::string(20, '\x0b')), bytes("Hi There"))),
              "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    EXPECT_TRUE(equal_in_constant_time(Digest{}, Digest{}));
    EXPECT_FALSE(equal_in_constant_time(Digest{}, Digest{std::byte{1}}));
}

}  // namespace
}  // namespace kvasir
