#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/bytes.h"
#include "base/result.h"
#include "base/sha256.h"
#include "base/units.h"

namespace kvasir {
namespace {

ByteSpan bytes(std::string_view text) {
    return std::as_bytes(std::span(text));
}

// FIPS 180-4's own examples.
TEST(Sha256Test, KnownValues) {
    EXPECT_EQ(to_hex(sha256(bytes("abc"))), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    EXPECT_EQ(to_hex(sha256({})), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST(Sha256Test, PiecesGiveTheSameAndTheObjectStartsOver) {
    Sha256 hash;
    for (int round = 0; round < 2; ++round) {
        hash.update(bytes("a"));
        hash.update(bytes("bc"));
        EXPECT_EQ(hash.finish(), sha256(bytes("abc")));
    }
}

TEST(Sha256Test, HexIsReadBackAndBadHexRefused) {
    Digest digest = sha256(bytes("x"));
    EXPECT_EQ(digest_from_hex(to_hex(digest)).value(), digest);
    EXPECT_FALSE(digest_from_hex("12"));
    EXPECT_FALSE(digest_from_hex(std::string(64, 'g')));
    EXPECT_TRUE(digest_from_hex(std::string(64, 'F')));
}

TEST(BytesTest, ReadsWhatWasWritten) {
    ByteWriter writer;
    writer.write<std::uint16_t>(0xBEEF);
    writer.write(1.5F);
    writer.write_string<std::uint32_t>("name");
    ByteReader reader(writer.buffer());
    EXPECT_EQ(reader.read<std::uint16_t>(), 0xBEEF);
    EXPECT_EQ(reader.read<float>(), 1.5F);
    EXPECT_EQ(reader.read_string<std::uint32_t>(10), "name");
    EXPECT_TRUE(reader.finished());
}

TEST(BytesTest, AReadPastTheEndFailsForGood) {
    ByteWriter writer;
    writer.write<std::uint32_t>(7);
    ByteReader reader(writer.buffer());
    EXPECT_EQ(reader.read<std::uint64_t>(), 0U);
    EXPECT_TRUE(reader.failed());
    EXPECT_EQ(reader.read<std::uint8_t>(), 0);
    EXPECT_FALSE(reader.finished());
}

TEST(BytesTest, ALyingLengthIsRefused) {
    ByteWriter writer;
    writer.write<std::uint64_t>(std::numeric_limits<std::uint64_t>::max());
    ByteReader reader(writer.buffer());
    EXPECT_EQ(reader.read_string<std::uint64_t>(std::numeric_limits<std::uint64_t>::max()), "");
    EXPECT_TRUE(reader.failed());
}

TEST(UnitsTest, ForPeople) {
    EXPECT_EQ(human_bytes(0), "0 B");
    EXPECT_EQ(human_bytes(999), "999 B");
    EXPECT_EQ(human_bytes(5'308'416), "5.31 MB");
    EXPECT_EQ(human_bytes(77'600'000'000), "77.6 GB");
    EXPECT_EQ(human_bytes(999'999), "1.00 MB");
    EXPECT_EQ(human_count(12'544), "12,544");
    EXPECT_EQ(human_count(999), "999");
    EXPECT_EQ(human_count(1'000'000), "1,000,000");
    EXPECT_EQ(human_seconds(0.00085), "850 us");
    EXPECT_EQ(human_seconds(0.0123), "12.3 ms");
    EXPECT_EQ(human_seconds(4.2), "4.20 s");
    EXPECT_EQ(human_seconds(200), "3 min 20 s");
    EXPECT_EQ(human_seconds(std::numeric_limits<double>::quiet_NaN()), "unknown");
}

TEST(UnitsTest, SizesAreParsed) {
    EXPECT_EQ(parse_bytes("4GiB").value(), 4ULL << 30);
    EXPECT_EQ(parse_bytes("500 MB").value(), 500'000'000U);
    EXPECT_EQ(parse_bytes("1.5g").value(), 1'500'000'000U);
    EXPECT_EQ(parse_bytes("4096").value(), 4096U);
    for (const char* bad : {"", "0", "-1", "four", "4 GX", "1e400", "99999999999TB", "0.1", "nan", "inf"}) {
        Result<std::uint64_t> size = parse_bytes(bad);
        ASSERT_FALSE(size) << bad;
        EXPECT_EQ(size.error().kind, ErrorKind::usage) << bad;
    }
}

TEST(ResultTest, KindsDecideExitCodes) {
    EXPECT_EQ(exit_code(ErrorKind::mismatch), 1);
    EXPECT_EQ(exit_code(ErrorKind::usage), 2);
    EXPECT_EQ(exit_code(ErrorKind::invalid), 3);
    EXPECT_EQ(exit_code(ErrorKind::unsupported), 3);
    EXPECT_EQ(exit_code(ErrorKind::unavailable), 4);
    EXPECT_EQ(exit_code(ErrorKind::io), 4);
    EXPECT_EQ(exit_code(ErrorKind::internal), 70);
}

}  // namespace
}  // namespace kvasir
