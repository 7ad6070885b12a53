#include "net/frame_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "net_fixture.h"

namespace kvasir::test {
namespace {

using testing::HasSubstr;

ByteVector frame_bytes(FrameType type, std::uint64_t request, const ByteVector& payload, bool checksummed = true) {
    FrameHeader header{type, checksummed, request, payload.size(), checksummed ? payload_checksum(payload) : 0};
    auto encoded = encode_header(header);
    ByteWriter writer;
    writer.append(encoded);
    writer.append(payload);
    return std::move(writer.buffer());
}

// Feeds bytes, at most `step` at a time; the frames that came out, or the error.
Result<std::vector<Frame>> feed(FrameReader& reader, ByteSpan bytes, std::size_t step) {
    std::vector<Frame> frames;
    while (!bytes.empty()) {
        std::span<std::byte> space = reader.space();
        std::size_t count = std::min({space.size(), bytes.size(), step});
        std::copy_n(bytes.begin(), count, space.begin());
        bytes = bytes.subspan(count);
        Result<std::optional<Frame>> frame = reader.advance(count);
        if (!frame) return fail(frame.error());
        if (*frame) frames.push_back(std::move(**frame));
    }
    return frames;
}

TEST(FrameReaderTest, PutsFramesTogetherFromAnyPieces) {
    ByteVector stream;
    const std::vector<std::size_t> lengths = {0, 1, 31, 32, 33, 1000, 0};
    for (std::size_t length : lengths) {
        ByteVector bytes = frame_bytes(FrameType::ping, length, pattern(length));
        stream.insert(stream.end(), bytes.begin(), bytes.end());
    }
    for (std::size_t step : {1, 2, 3, 7, 31, 32, 33, 100, 100'000}) {
        FrameReader reader(true);
        Result<std::vector<Frame>> frames = feed(reader, stream, step);
        ASSERT_TRUE(frames.has_value()) << frames.error().message;
        ASSERT_EQ(frames->size(), lengths.size());
        for (std::size_t i = 0; i < lengths.size(); ++i) {
            EXPECT_EQ((*frames)[i].request, lengths[i]);
            EXPECT_EQ((*frames)[i].payload, pattern(lengths[i]));
        }
        EXPECT_FALSE(reader.in_frame());
    }
}

TEST(FrameReaderTest, AnnouncedBytesCostNothingUntilTheyCome) {
    FrameReader reader(false);
    reader.set_limit(kPayloadLimit);
    auto header = encode_header({FrameType::result, false, 1, kPayloadLimit, 0});
    ASSERT_TRUE(feed(reader, header, 32).has_value());
    std::size_t room = reader.space().size();
    EXPECT_LE(room, 1U << 20);
    // Whoever fills what there is gets as much again, never more.
    std::size_t filled = 0;
    for (int i = 0; i < 5; ++i) {
        room = reader.space().size();
        EXPECT_LE(room, std::max<std::size_t>(filled, 1 << 20));
        filled += room;
        ASSERT_TRUE(reader.advance(room).has_value());
    }
    EXPECT_TRUE(reader.in_frame());
    EXPECT_EQ(reader.announced(), kPayloadLimit + 32);
    EXPECT_EQ(reader.filled(), filled + 32);
}

TEST(FrameReaderTest, LimitsApplyByType) {
    FrameReader reader(false);
    auto over = encode_header({FrameType::compute, false, 1, kControlPayloadLimit + 1, 0});
    Result<std::vector<Frame>> refused = feed(reader, over, 32);
    ASSERT_FALSE(refused.has_value());
    EXPECT_THAT(refused.error().message, HasSubstr("the limit is 1048576"));

    FrameReader raised(false);
    raised.set_limit(kPayloadLimit);
    EXPECT_TRUE(feed(raised, over, 32).has_value());
    FrameReader control(false);
    control.set_limit(kPayloadLimit);
    auto ping = encode_header({FrameType::ping, false, 1, kControlPayloadLimit + 1, 0});
    EXPECT_FALSE(feed(control, ping, 32).has_value());
}

TEST(FrameReaderTest, DamagedPayloadsAreNoticed) {
    ByteVector bytes = frame_bytes(FrameType::compute, 1, pattern(1000));
    for (std::size_t at : {32UL, 500UL, 1031UL}) {
        ByteVector bad = bytes;
        bad[at] ^= std::byte{1};
        FrameReader reader(true);
        Result<std::vector<Frame>> refused = feed(reader, bad, 100);
        ASSERT_FALSE(refused.has_value());
        EXPECT_THAT(refused.error().message, HasSubstr("does not match its checksum"));
    }
}

TEST(FrameReaderTest, ChecksumsCannotBeLeftOut) {
    ByteVector bytes = frame_bytes(FrameType::ping, 1, {}, false);
    FrameReader strict(true);
    Result<std::vector<Frame>> refused = feed(strict, bytes, 100);
    ASSERT_FALSE(refused.has_value());
    EXPECT_THAT(refused.error().message, HasSubstr("without payload checksum"));
    FrameReader relaxed(false);
    EXPECT_TRUE(feed(relaxed, bytes, 100).has_value());
}

}  // namespace
}  // namespace kvasir::test
