#include "net/signature.h"

#include <gtest/gtest.h>

#include "base/hmac.h"

namespace kvasir {
namespace {

ByteSpan bytes(std::string_view text) {
    return std::as_bytes(std::span(text));
}

TEST(SignatureTest, OnlyTheKeyAndTheMessageVerify) {
    const Identity identity = Identity::generate().value();
    const Identity other = Identity::generate().value();
    const Signature signature = sign(identity, bytes("message"));
    EXPECT_TRUE(verify(public_key(identity), bytes("message"), signature));
    EXPECT_FALSE(verify(public_key(identity), bytes("massage"), signature));
    EXPECT_FALSE(verify(public_key(other), bytes("message"), signature));
    for (std::size_t i = 0; i < signature.size(); ++i) {
        Signature changed = signature;
        changed[i] ^= std::byte{1};
        EXPECT_FALSE(verify(public_key(identity), bytes("message"), changed)) << i;
    }
    EXPECT_FALSE(verify(PublicKey{}, bytes("message"), signature));
}

TEST(SignatureTest, ANodesIdIsItsKeys) {
    const Identity identity = Identity::generate().value();
    EXPECT_EQ(node_id(public_key(identity)), identity.id());
}

TEST(SignatureTest, AgreesWithTheRfcsFirstVector) {
    // RFC 8032, 7.1, test 1: an empty message.
    const Digest key = digest_from_hex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a").value();
    const Digest r = digest_from_hex("e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155").value();
    const Digest s = digest_from_hex("5fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b").value();
    Signature signature{};
    std::copy(r.begin(), r.end(), signature.begin());
    std::copy(s.begin(), s.end(), signature.begin() + 32);
    EXPECT_TRUE(verify(key, {}, signature));
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
