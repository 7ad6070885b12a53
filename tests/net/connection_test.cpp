// Both kinds of connection, both directions: lengths, order, bounds, closing.
#include "net/connection.h"

#include <gtest/gtest.h>

#include <atomic>

#include "net_fixture.h"

namespace kvasir::test {
namespace {

class ConnectionTest : public testing::TestWithParam<bool> {
  protected:
    bool tls() const { return GetParam(); }

    // A connected pair: client and server.
    std::pair<End, End> make_pair(const ConnectionOptions& options = {}) {
        server_ = std::make_unique<Server>(io_, tls() ? server_identity_ : nullptr, options);
        auto client = connect_now(io_, server_->address(), tls() ? client_identity_ : nullptr,
                                  tls() ? std::optional(server_identity_->id()) : std::nullopt,
                                  std::chrono::seconds(30), options);
        EXPECT_TRUE(client.has_value()) << client.error().message;
        return {End(client ? *client : nullptr), End(server_->accepted->next())};
    }

    std::shared_ptr<const Identity> server_identity_ = new_identity();
    std::shared_ptr<const Identity> client_identity_ = new_identity();
    IoThreads io_{2};
    std::unique_ptr<Server> server_;
};

void expect_transfer(const End& from, const End& to, std::size_t size) {
    ByteVector sent = pattern(size, static_cast<std::uint32_t>(size));
    ASSERT_TRUE(from.connection->send({FrameType::compute, size + 7, sent}));
    std::optional<Frame> got = to.inbox->next();
    ASSERT_TRUE(got.has_value()) << "a frame of " << size << " bytes did not arrive";
    EXPECT_EQ(got->type, FrameType::compute);
    EXPECT_EQ(got->request, size + 7);
    EXPECT_TRUE(got->payload == sent) << size << " bytes arrived changed";
}

TEST_P(ConnectionTest, CarriesFramesOfEveryLengthBothWays) {
    auto [client, server] = make_pair();
    client.connection->set_payload_limit(kPayloadLimit);
    server.connection->set_payload_limit(kPayloadLimit);
    for (std::size_t size :
         {0, 1, 125, 126, 16351, 16352, 16353, 16384, 65535, 65536, 1 << 20, (1 << 20) + 1, 1 << 24}) {
        expect_transfer(client, server, size);
        expect_transfer(server, client, size);
    }
    EXPECT_EQ(client.connection->bytes_sent(), server.connection->bytes_received());
    EXPECT_EQ(client.connection->bytes_received(), server.connection->bytes_sent());
}

INSTANTIATE_TEST_SUITE_P(Kinds, ConnectionTest, testing::Bool(),
                         [](const auto& kind) { return kind.param ? "Tls" : "Plain"; });

}  // namespace
}  // namespace kvasir::test
