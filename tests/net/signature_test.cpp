#include "net/signature.h"

#include <gtest/gtest.h>
#include <openssl/pem.h>

#include <cstdio>
#include <memory>

#include "base/hex.h"
#include "base/temp_directory.h"

namespace kvasir {
namespace {

ByteVector from_hex(std::string_view digits) {
    return bytes_from_hex(digits).value();
}

template <std::size_t kSize>
std::array<std::byte, kSize> array_from_hex(std::string_view digits) {
    const ByteVector bytes = from_hex(digits);
    std::array<std::byte, kSize> array{};
    EXPECT_EQ(bytes.size(), kSize);
    std::copy_n(bytes.begin(), std::min(kSize, bytes.size()), array.begin());
    return array;
}

// RFC 8032, section 7.1.
struct Known {
    const char* secret;
    const char* key;
    const char* text;
    const char* signature;
};
constexpr Known kKnown[] = {
    {"9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
     "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a", "",
     "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe246"
     "5"
     "5141438e7a100b"},
    {"4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
     "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c", "72",
     "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb"
     "0"
     "0d291612bb0c00"},
};

// An identity of a given private key, through the file that identities are kept in.
Identity identity_of(const char* secret) {
    const ByteVector raw = from_hex(secret);
    const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(
        EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, nullptr, reinterpret_cast<const unsigned char*>(raw.data()),
                                     raw.size()),
        EVP_PKEY_free);
    const TempDirectory directory = std::move(*TempDirectory::create("kvasir-signature-test-"));
    const std::filesystem::path path = directory.path() / "identity.pem";
    std::FILE* file = std::fopen(path.c_str(), "w");
    EXPECT_EQ(PEM_write_PrivateKey(file, key.get(), nullptr, nullptr, 0, nullptr, nullptr), 1);
    std::fclose(file);
    std::filesystem::permissions(path, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
    return Identity::load(path).value();
}

TEST(SignatureTest, IsTheStandardsEd25519) {
    for (const Known& known : kKnown) {
        const Identity identity = identity_of(known.secret);
        EXPECT_EQ(hex(public_key(identity)), known.key);
        EXPECT_EQ(hex(sign(identity, from_hex(known.text))), known.signature);
        EXPECT_TRUE(verify(array_from_hex<32>(known.key), from_hex(known.text), array_from_hex<64>(known.signature)));
    }
}

TEST(SignatureTest, ANodesIdIsTheHashOfItsPublicKey) {
    const Identity identity = Identity::generate().value();
    EXPECT_EQ(node_id(public_key(identity)), identity.id());
}

TEST(SignatureTest, AnyOtherBitIsNoSignature) {
    const Identity identity = Identity::generate().value();
    const PublicKey key = public_key(identity);
    const ByteVector text = from_hex("00112233445566778899");
    const Signature signature = sign(identity, text);
    ASSERT_TRUE(verify(key, text, signature));
    for (std::size_t bit = 0; bit < signature.size() * 8; ++bit) {
        Signature other = signature;
        other[bit / 8] ^= std::byte{1} << bit % 8;
        EXPECT_FALSE(verify(key, text, other)) << bit;
    }
    for (std::size_t bit = 0; bit < text.size() * 8; ++bit) {
        ByteVector other = text;
        other[bit / 8] ^= std::byte{1} << bit % 8;
        EXPECT_FALSE(verify(key, other, signature)) << bit;
    }
    for (std::size_t bit = 0; bit < key.size() * 8; ++bit) {
        PublicKey other = key;
        other[bit / 8] ^= std::byte{1} << bit % 8;
        EXPECT_FALSE(verify(other, text, signature)) << bit;
    }
    EXPECT_FALSE(verify(key, {}, signature));
    EXPECT_FALSE(verify(public_key(Identity::generate().value()), text, signature));
}

// What OpenSSL's functions are given comes from anybody.
TEST(SignatureTest, NonsenseIsNoSignature) {
    PublicKey ones{};
    ones.fill(std::byte{0xFF});
    Signature all{};
    all.fill(std::byte{0xFF});
    const ByteVector text = from_hex("01");
    EXPECT_FALSE(verify(ones, text, all));
    EXPECT_FALSE(verify(ones, text, Signature{}));
    EXPECT_FALSE(verify(PublicKey{}, text, all));
}

}  // namespace
}  // namespace kvasir
