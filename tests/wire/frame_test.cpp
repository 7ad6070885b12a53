#include "wire/frame.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace kvasir {
namespace {

using testing::HasSubstr;
using Header = std::array<std::byte, kFrameHeaderBytes>;

FrameHeader some_header() {
    return {FrameType::compute, true, 0x0123456789ABCDEF, 12'345, 0xDEADBEEF};
}

// Puts `value` at `offset` of a valid header and repairs its checksum, so that only the field itself is wrong.
template <class T>
Header with_field(std::size_t offset, T value) {
    Header bytes = encode_header(some_header());
    std::memcpy(bytes.data() + offset, &value, sizeof(value));
    std::uint32_t checksum = payload_checksum(ByteSpan(bytes).first(28));
    std::memcpy(bytes.data() + 28, &checksum, sizeof(checksum));
    return bytes;
}

std::string refusal(const Header& bytes, std::uint64_t limit = kPayloadLimit) {
    Result<FrameHeader> header = decode_header(bytes, limit);
    if (header) return "accepted";
    EXPECT_EQ(header.error().kind, ErrorKind::invalid);
    return header.error().message;
}

TEST(FrameTest, LayoutIsThatOfTheProtocol) {
    Header bytes = encode_header(some_header());
    ByteReader reader(bytes);
    ByteSpan magic = reader.take(4);
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(magic.data()), 4), "KVF1");
    EXPECT_EQ(reader.read<std::uint8_t>(), 3);
    EXPECT_EQ(reader.read<std::uint8_t>(), 1);
    EXPECT_EQ(reader.read<std::uint16_t>(), 0);
    EXPECT_EQ(reader.read<std::uint64_t>(), 0x0123456789ABCDEF);
    EXPECT_EQ(reader.read<std::uint64_t>(), 12'345U);
    EXPECT_EQ(reader.read<std::uint32_t>(), 0xDEADBEEF);
    // XXH3-64 of no bytes is 2d06800538d394c2, a published test vector.
    EXPECT_EQ(payload_checksum({}), 0x38D394C2U);
}

TEST(FrameTest, EveryTypeAndLengthComesBack) {
    for (std::uint8_t type = 1; type <= 10; ++type) {
        auto frame_type = static_cast<FrameType>(type);
        bool rows = frame_type == FrameType::compute || frame_type == FrameType::result;
        for (std::uint64_t length : {0UL, 125UL, 126UL, 65'535UL, 65'536UL, 1UL << 24, 1UL << 30}) {
            FrameHeader header{frame_type, false, ~std::uint64_t{0} - type, length, 0};
            Result<FrameHeader> back = decode_header(encode_header(header), kPayloadLimit);
            ASSERT_EQ(back.has_value(), rows || length <= kControlPayloadLimit) << int{type} << " " << length;
            if (!back) continue;
            EXPECT_EQ(back->type, header.type);
            EXPECT_FALSE(back->checksummed);
            EXPECT_EQ(back->request, header.request);
            EXPECT_EQ(back->payload_length, length);
        }
    }
}

TEST(FrameTest, LengthsOverTheBoundAreRefused) {
    auto with_length = [](std::uint64_t length) { return with_field(16, length); };
    EXPECT_EQ(refusal(with_length(1000), 1000), "accepted");
    EXPECT_THAT(refusal(with_length(1001), 1000), HasSubstr("announces 1001 payload bytes; the limit is 1000"));
    EXPECT_THAT(refusal(with_length(~std::uint64_t{0})), HasSubstr("18446744073709551615"));
    EXPECT_THAT(refusal(with_length((std::uint64_t{1} << 32) + 5)), HasSubstr("4294967301"));
    EXPECT_THAT(refusal(with_length(kPayloadLimit + 1)), HasSubstr("the limit is 1073741824"));
}

TEST(FrameTest, WrongFieldsAreNamed) {
    EXPECT_THAT(refusal(with_field(0, std::uint32_t{0x20544547})), HasSubstr("magic"));
    EXPECT_THAT(refusal(with_field(4, std::uint8_t{0})), HasSubstr("type 0"));
    EXPECT_THAT(refusal(with_field(4, std::uint8_t{12})), HasSubstr("type 12"));
    EXPECT_THAT(refusal(with_field(5, std::uint8_t{3})), HasSubstr("flags"));
    EXPECT_THAT(refusal(with_field(5, std::uint8_t{0})), HasSubstr("its flag is not set"));
    EXPECT_THAT(refusal(with_field(6, std::uint16_t{1})), HasSubstr("reserved"));
}

TEST(FrameTest, EveryFlippedBitIsNoticed) {
    Header good = encode_header(some_header());
    for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
        Header bad = good;
        bad[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
        EXPECT_THAT(refusal(bad), HasSubstr(bit < 32 ? "magic" : "checksum")) << "bit " << bit;
    }
}

TEST(FrameTest, BeginningsAreTold) {
    Header good = encode_header(some_header());
    for (std::size_t length = 0; length <= good.size(); ++length)
        EXPECT_TRUE(may_begin_frame(ByteSpan(good).first(length)));
    for (std::size_t at = 0; at < 4; ++at) {
        Header bad = good;
        bad[at] ^= std::byte{1};
        EXPECT_TRUE(may_begin_frame(ByteSpan(bad).first(at)));
        EXPECT_FALSE(may_begin_frame(ByteSpan(bad).first(at + 1)));
    }
}

TEST(FrameTest, RandomBytesAreRefused) {
    std::mt19937_64 random(1);
    for (int i = 0; i < 10'000; ++i) {
        Header bytes{};
        for (std::byte& byte : bytes)
            byte = static_cast<std::byte>(random());
        EXPECT_FALSE(decode_header(bytes, kPayloadLimit).has_value());
    }
}

}  // namespace
}  // namespace kvasir
