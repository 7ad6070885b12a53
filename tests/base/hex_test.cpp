#include "base/hex.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kvasir {
namespace {

using testing::HasSubstr;

TEST(HexTest, EveryByteComesBackInEitherCase) {
    ByteVector bytes;
    for (int value = 0; value < 256; ++value)
        bytes.push_back(static_cast<std::byte>(value));
    const std::string digits = hex(bytes);
    EXPECT_EQ(digits.substr(0, 4), "0001");
    EXPECT_EQ(digits.substr(2 * 0xAB, 2), "ab");
    EXPECT_EQ(bytes_from_hex(digits).value(), bytes);
    std::string upper = digits;
    for (char& digit : upper)
        digit = static_cast<char>(std::toupper(digit));
    EXPECT_EQ(bytes_from_hex(upper).value(), bytes);
}

TEST(HexTest, OfNothingIsNothing) {
    EXPECT_EQ(hex({}), "");
    EXPECT_EQ(bytes_from_hex("").value(), ByteVector());
}

TEST(HexTest, WhatIsNotHexIsRefusedWithItsPlace) {
    for (const char* digits : {"0", "000", "0g", "g0", "0x", " 0", "0 ", "/0", ":0", "@0", "`0", "0\xFF"}) {
        const Result<ByteVector> bytes = bytes_from_hex(digits);
        ASSERT_FALSE(bytes) << digits;
        EXPECT_EQ(bytes.error().kind, ErrorKind::invalid);
    }
    EXPECT_THAT(bytes_from_hex("00112x33").error().message, HasSubstr("'2x' at 4"));
    EXPECT_THAT(bytes_from_hex("001").error().message, HasSubstr("3 hex digits"));
    EXPECT_FALSE(bytes_from_hex(std::string_view("00\0000", 6)));
}

}  // namespace
}  // namespace kvasir
