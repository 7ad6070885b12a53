// Peers that break the rules, by malice or by accident; none may harm the others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "net_fixture.h"
#include "raw_socket.h"

namespace kvasir::test {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

ByteVector frame_bytes(std::uint64_t request, const ByteVector& payload) {
    auto header = encode_header({FrameType::compute, true, request, payload.size(), payload_checksum(payload)});
    ByteWriter writer;
    writer.append(header);
    writer.append(payload);
    return std::move(writer.buffer());
}

class HostileTest : public testing::Test {
  protected:
    // A raw socket, and the end that a plain listener made of it.
    std::pair<RawSocket, End> raw_pair(const ConnectionOptions& options = {}) {
        server_ = std::make_unique<Server>(io_, nullptr, options);
        RawSocket raw = RawSocket::connected(server_->address().port);
        return {std::move(raw), End(server_->accepted->next())};
    }

    IoThreads io_{2};
    std::unique_ptr<Server> server_;
};

TEST_F(HostileTest, GarbageBeforeTlsHarmsNobody) {
    auto worker = new_identity();
    auto backbone = new_identity();
    Server server(io_, worker);
    std::mt19937 random(3);
    for (int i = 0; i < 30; ++i) {
        RawSocket raw = RawSocket::connected(server.address().port);
        ByteVector garbage(1 + random() % 2000);
        for (std::byte& byte : garbage)
            byte = static_cast<std::byte>(random());
        if (i % 3 == 0) std::memcpy(garbage.data(), "\x16", 1);
        raw.send(garbage);
        if (i % 2 == 0) raw.reset();
    }
    RawSocket http = RawSocket::connected(server.address().port);
    http.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    http.receive_all();
    Result<ConnectionPtr> client = connect_now(io_, server.address(), backbone, worker->id());
    ASSERT_TRUE(client.has_value()) << client.error().message;
    EXPECT_NE(server.accepted->next(), nullptr);
}

TEST_F(HostileTest, GarbageInsteadOfFramesIsAnsweredAndEnded) {
    auto [raw, end] = raw_pair();
    raw.send("GET / HTTP/1.1\r\nHost: example.org\r\n\r\n");
    Error reason = end.inbox->wait_closed();
    EXPECT_EQ(reason.kind, ErrorKind::invalid);
    EXPECT_THAT(reason.message, HasSubstr("does not begin like a frame"));
    EXPECT_FALSE(end.inbox->next().has_value());
    ByteVector answer = raw.receive_all();
    ASSERT_GT(answer.size(), kFrameHeaderBytes);
    Result<FrameHeader> header = decode_header(std::span(answer).first<kFrameHeaderBytes>(), kControlPayloadLimit);
    ASSERT_TRUE(header.has_value()) << header.error().message;
    EXPECT_EQ(header->type, FrameType::error);
}

TEST_F(HostileTest, DamagedFramesEndTheConnection) {
    const ByteVector good = frame_bytes(1, pattern(100));
    for (std::size_t at : {0UL, 4UL, 20UL, 30UL, 40UL, 131UL}) {
        auto [raw, end] = raw_pair();
        ByteVector bad = good;
        bad[at] ^= std::byte{0x40};
        raw.send(good);
        raw.send(bad);
        std::optional<Frame> first = end.inbox->next();
        ASSERT_TRUE(first.has_value()) << "byte " << at;
        EXPECT_EQ(end.inbox->wait_closed().kind, ErrorKind::invalid) << "byte " << at;
        EXPECT_FALSE(end.inbox->next().has_value()) << "byte " << at;
    }
}

TEST_F(HostileTest, DribbledFramesArriveWhole) {
    auto [raw, end] = raw_pair();
    ByteVector bytes = frame_bytes(42, pattern(300));
    for (const std::byte& byte : bytes)
        raw.send(ByteSpan(&byte, 1));
    std::optional<Frame> frame = end.inbox->next();
    ASSERT_TRUE(frame.has_value());
    EXPECT_EQ(frame->request, 42U);
    EXPECT_EQ(frame->payload, pattern(300));
}

TEST_F(HostileTest, HalfAFrameHasADeadlineAndSilenceHasNone) {
    ConnectionOptions options;
    options.stall = milliseconds(100);
    auto [raw, end] = raw_pair(options);
    RawSocket quiet = RawSocket::connected(server_->address().port);
    End quiet_end(server_->accepted->next());
    ByteVector bytes = frame_bytes(1, pattern(1000));
    raw.send(ByteSpan(bytes).first(500));
    Error reason = end.inbox->wait_closed();
    EXPECT_EQ(reason.kind, ErrorKind::unavailable);
    EXPECT_THAT(reason.message, HasSubstr("500 bytes of a frame of 1032"));
    // The silent one, as long without a byte, is still served.
    quiet.send(bytes);
    EXPECT_TRUE(quiet_end.inbox->next().has_value());
}

TEST_F(HostileTest, HalfAHeaderHasADeadlineToo) {
    ConnectionOptions options;
    options.stall = milliseconds(100);
    auto [raw, end] = raw_pair(options);
    raw.send("K");
    EXPECT_THAT(end.inbox->wait_closed().message, HasSubstr("1 bytes of a frame of 32"));
}

TEST_F(HostileTest, HugeAnnouncementThenSilence) {
    ConnectionOptions options;
    options.stall = milliseconds(100);
    auto [raw, end] = raw_pair(options);
    end.connection->set_payload_limit(kPayloadLimit);
    raw.send(encode_header({FrameType::compute, true, 1, kPayloadLimit, 0}));
    EXPECT_THAT(end.inbox->wait_closed().message, HasSubstr("32 bytes of a frame of 1073741856"));
}

TEST_F(HostileTest, VanishingMidFrameIsNoticed) {
    auto [raw, end] = raw_pair();
    raw.send(ByteSpan(frame_bytes(1, pattern(1000))).first(700));
    raw.close();
    EXPECT_EQ(end.inbox->wait_closed().kind, ErrorKind::unavailable);
    EXPECT_FALSE(end.inbox->next().has_value());
}

TEST_F(HostileTest, ResetIsNoticed) {
    auto [raw, end] = raw_pair();
    raw.send(frame_bytes(1, {}));
    ASSERT_TRUE(end.inbox->next().has_value());
    raw.reset();
    EXPECT_EQ(end.inbox->wait_closed().kind, ErrorKind::unavailable);
    EXPECT_FALSE(end.connection->send({FrameType::ping, 0, {}}));
}

TEST_F(HostileTest, FramesBeforeTheEndAreDelivered) {
    auto [raw, end] = raw_pair();
    for (std::uint64_t i = 0; i < 100; ++i)
        raw.send(frame_bytes(i, pattern(3000)));
    raw.close();
    for (std::uint64_t i = 0; i < 100; ++i) {
        std::optional<Frame> frame = end.inbox->next();
        ASSERT_TRUE(frame.has_value()) << i;
        EXPECT_EQ(frame->request, i);
    }
    end.inbox->wait_closed();
}

}  // namespace
}  // namespace kvasir::test
