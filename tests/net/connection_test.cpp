// Connections with TLS and without, both directions: lengths, order, bounds, closing.
#include "net/connection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>

#include "net_fixture.h"
#include "wire/messages.h"

namespace kvasir::test {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

class ConnectionTest : public testing::TestWithParam<bool> {
  protected:
    bool tls() const { return GetParam(); }

    void listen(const ConnectionOptions& options = {}) {
        server_ = std::make_unique<Server>(io_, tls() ? server_identity_ : nullptr, options);
    }
    ConnectionPtr connect_client(const ConnectionOptions& options = {}) {
        Result<ConnectionPtr> client = connect_now(io_, server_->address(), tls() ? client_identity_ : nullptr,
                                                   tls() ? std::optional(server_identity_->id()) : std::nullopt,
                                                   std::chrono::seconds(30), options);
        EXPECT_TRUE(client.has_value()) << client.error().message;
        return client.value_or(nullptr);
    }
    // A connected pair: client and server.
    std::pair<End, End> make_pair(const ConnectionOptions& options = {}) {
        listen(options);
        ConnectionPtr client = connect_client(options);
        ConnectionPtr server = server_->accepted->next();
        client->set_payload_limit(kPayloadLimit);
        server->set_payload_limit(kPayloadLimit);
        return {End(std::move(client)), End(std::move(server))};
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
    for (std::size_t size : {0, 1, 125, 126, 16351, 16352, 16353, 16384, 65535, 65536, (1 << 20) + 1, 1 << 24}) {
        expect_transfer(client, server, size);
        expect_transfer(server, client, size);
    }
    EXPECT_EQ(client.connection->bytes_sent(), server.connection->bytes_received());
    EXPECT_EQ(client.connection->bytes_received(), server.connection->bytes_sent());
}

TEST_P(ConnectionTest, KnowsItsPeer) {
    auto [client, server] = make_pair();
    if (tls()) {
        EXPECT_EQ(client.connection->peer(), server_identity_->id());
        EXPECT_EQ(server.connection->peer(), client_identity_->id());
    } else {
        EXPECT_EQ(client.connection->peer(), std::nullopt);
        EXPECT_EQ(server.connection->peer(), std::nullopt);
    }
    EXPECT_EQ(client.connection->peer_address(), server_->address().text());
    EXPECT_THAT(server.connection->peer_address(), testing::StartsWith("127.0.0.1:"));
}

TEST_P(ConnectionTest, FramesOverTheBoundEndIt) {
    auto [client, server] = make_pair();
    server.connection->set_payload_limit(kControlPayloadLimit);
    expect_transfer(client, server, kControlPayloadLimit);
    ASSERT_TRUE(client.connection->send({FrameType::compute, 1, ByteVector(kControlPayloadLimit + 1)}));
    Error reason = server.inbox->wait_closed();
    EXPECT_EQ(reason.kind, ErrorKind::invalid);
    EXPECT_THAT(reason.message, HasSubstr("the limit is 1048576"));
    EXPECT_FALSE(server.inbox->next().has_value());
    // The sender learns why.
    std::optional<Frame> told = client.inbox->next();
    ASSERT_TRUE(told.has_value());
    EXPECT_EQ(told->type, FrameType::error);
    EXPECT_EQ(told->request, 0U);
    Result<WireError> error = decode_error(told->payload);
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(error->code, WireErrorCode::bad_request);
    EXPECT_THAT(error->text, HasSubstr("the limit is 1048576"));
    client.inbox->wait_closed();
}

TEST_P(ConnectionTest, LargeFramesInBothDirectionsAtOnceDontBlockEachOther) {
    auto [client, server] = make_pair();
    constexpr std::size_t kFrames = 8;
    constexpr std::size_t kSize = 3 << 20;
    auto send_all = [](const End& end) {
        for (std::size_t i = 0; i < kFrames; ++i) {
            EXPECT_TRUE(end.connection->send({FrameType::result, i, pattern(kSize, static_cast<std::uint32_t>(i))}));
        }
    };
    std::thread other([&, &end = server] { send_all(end); });
    send_all(client);
    other.join();
    for (const End* end : {&client, &server}) {
        for (std::size_t i = 0; i < kFrames; ++i) {
            std::optional<Frame> frame = end->inbox->next();
            ASSERT_TRUE(frame.has_value());
            EXPECT_EQ(frame->request, i);
            EXPECT_TRUE(frame->payload == pattern(kSize, static_cast<std::uint32_t>(i)));
        }
    }
}

TEST_P(ConnectionTest, ManyThreadsMaySend) {
    auto [client, server] = make_pair();
    constexpr std::uint64_t kThreads = 4;
    constexpr std::uint64_t kFrames = 200;
    std::vector<std::thread> threads;
    for (std::uint64_t t = 0; t < kThreads; ++t) {
        threads.emplace_back([&, t, &end = client] {
            for (std::uint64_t i = 0; i < kFrames; ++i) {
                auto seed = static_cast<std::uint32_t>(t * kFrames + i);
                EXPECT_TRUE(end.connection->send({FrameType::compute, t << 32 | i, pattern(i * 50, seed)}));
            }
        });
    }
    for (std::thread& thread : threads)
        thread.join();
    std::map<std::uint64_t, std::uint64_t> next;
    for (std::uint64_t n = 0; n < kThreads * kFrames; ++n) {
        std::optional<Frame> frame = server.inbox->next();
        ASSERT_TRUE(frame.has_value());
        std::uint64_t thread = frame->request >> 32;
        std::uint64_t i = frame->request & 0xFFFFFFFF;
        EXPECT_EQ(i, next[thread]++) << "thread " << thread << " was overtaken by itself";
        EXPECT_TRUE(frame->payload == pattern(i * 50, static_cast<std::uint32_t>(thread * kFrames + i)));
    }
}

TEST_P(ConnectionTest, CloseSendsWhatIsQueuedFirst) {
    ConnectionOptions options;
    options.flush = std::chrono::seconds(60);
    auto [client, server] = make_pair(options);
    for (std::uint64_t i = 0; i < 10; ++i) {
        ASSERT_TRUE(client.connection->send({FrameType::compute, i, pattern(1 << 20)}));
    }
    client.connection->close({ErrorKind::unavailable, "done here"});
    EXPECT_FALSE(client.connection->send({FrameType::ping, 0, {}}));
    for (std::uint64_t i = 0; i < 10; ++i) {
        std::optional<Frame> frame = server.inbox->next();
        ASSERT_TRUE(frame.has_value()) << "frame " << i << " was lost";
        EXPECT_EQ(frame->request, i);
    }
    EXPECT_EQ(server.inbox->wait_closed().message, "the peer closed the connection");
    EXPECT_EQ(client.inbox->wait_closed().message, "done here");
}

TEST_P(ConnectionTest, LastWordsArriveThoughUnreadFramesWait) {
    // A kernel resets a connection that is closed with bytes unread, and drops what it had not sent yet.
    auto [client, server] = make_pair();
    for (int i = 0; i < 20; ++i)
        client.connection->send({FrameType::compute, 0, ByteVector(1 << 18)});
    ASSERT_TRUE(server.inbox->next().has_value());
    server.connection->send({FrameType::error, 0, encode(WireError{WireErrorCode::draining, "good night"})});
    server.connection->close({ErrorKind::unavailable, "draining"});
    std::optional<Frame> told = client.inbox->next();
    ASSERT_TRUE(told.has_value());
    EXPECT_EQ(decode_error(told->payload)->text, "good night");
    client.inbox->wait_closed();
    server.inbox->wait_closed();
}

TEST_P(ConnectionTest, CloseDoesNotWaitForAPeerThatReadsNothing) {
    ConnectionOptions options;
    options.flush = milliseconds(50);
    listen(options);
    End client(connect_client(options));
    ConnectionPtr sleeper = server_->accepted->next();  // never started
    for (int i = 0; i < 40; ++i)
        client.connection->send({FrameType::compute, 0, ByteVector(1 << 20)});
    client.connection->close({ErrorKind::unavailable, "enough"});
    EXPECT_EQ(client.inbox->wait_closed().message, "enough");
}

TEST_P(ConnectionTest, PeerThatTakesNothingIsGivenUp) {
    ConnectionOptions options;
    options.stall = milliseconds(200);
    listen();
    End client(connect_client(options));
    ConnectionPtr sleeper = server_->accepted->next();
    for (int i = 0; i < 40; ++i)
        client.connection->send({FrameType::compute, 0, ByteVector(1 << 20)});
    EXPECT_THAT(client.inbox->wait_closed().message, HasSubstr("the peer has taken none"));
}

TEST_P(ConnectionTest, SendQueueIsBounded) {
    ConnectionOptions options;
    options.send_queue_limit = 1 << 20;
    listen();
    End client(connect_client(options));
    ConnectionPtr server = server_->accepted->next();
    std::uint64_t accepted = 0;
    while (client.connection->send({FrameType::compute, accepted, ByteVector(100'000)})) {
        ASSERT_LT(++accepted, 1000U) << "100 MB were taken for a peer that reads nothing";
    }
    // What was taken arrives; then there is room again.
    End reading(server);
    for (std::uint64_t i = 0; i < accepted; ++i) {
        std::optional<Frame> frame = reading.inbox->next();
        ASSERT_TRUE(frame.has_value());
        EXPECT_EQ(frame->request, i);
    }
    EXPECT_TRUE(client.connection->send({FrameType::compute, 0, {}}));
}

TEST_P(ConnectionTest, HandlersAreCalledOnceAndReleased) {
    listen();
    ConnectionPtr client = connect_client();
    End server(server_->accepted->next());
    auto token = std::make_shared<int>(0);
    std::weak_ptr<int> released = token;
    auto inbox = std::make_shared<Inbox>();
    // The handlers own the connection, as a session does.
    client->start([token, client](Frame&&) {}, [token, client, inbox](const Error& error) { inbox->closed(error); });
    token.reset();
    client->close({ErrorKind::unavailable, "first"});
    client->close({ErrorKind::unavailable, "second"});
    EXPECT_EQ(inbox->wait_closed().message, "first");
    server.inbox->wait_closed();
    client->close({ErrorKind::unavailable, "third"});
    std::weak_ptr<Connection> gone = client;
    client.reset();
    io_.stop();
    EXPECT_TRUE(released.expired());
    EXPECT_EQ(inbox->closes(), 1);
    EXPECT_EQ(server.inbox->closes(), 1);
}

TEST_P(ConnectionTest, HandlersMayCloseAndSend) {
    listen();
    ConnectionPtr client = connect_client();
    End server(server_->accepted->next());
    auto inbox = std::make_shared<Inbox>();
    client->start(
        [weak = std::weak_ptr(client)](Frame&& frame) {
            ConnectionPtr self = weak.lock();
            self->send({FrameType::pong, frame.request, {}});
            self->close({ErrorKind::unavailable, "closed inside"});
        },
        [inbox, weak = std::weak_ptr(client)](const Error& error) {
            weak.lock()->send({FrameType::ping, 0, {}});
            weak.lock()->close(error);
            inbox->closed(error);
        });
    ASSERT_TRUE(server.connection->send({FrameType::ping, 5, {}}));
    server.connection->send({FrameType::ping, 6, {}});  // dropped, or refused where the close was quicker
    std::optional<Frame> pong = server.inbox->next();
    ASSERT_TRUE(pong.has_value());
    EXPECT_EQ(pong->request, 5U);
    EXPECT_EQ(inbox->wait_closed().message, "closed inside");
    server.inbox->wait_closed();
}

TEST_P(ConnectionTest, CloseBeforeStartIsReported) {
    listen();
    ConnectionPtr client = connect_client();
    client->close({ErrorKind::unavailable, "early"});
    End end(client);
    EXPECT_EQ(end.inbox->wait_closed().message, "early");
}

TEST_P(ConnectionTest, ClosingWhileOthersSendIsSafe) {
    for (int round = 0; round < 10; ++round) {
        auto [client, server] = make_pair();
        std::vector<std::thread> senders;
        for (int t = 0; t < 2; ++t) {
            senders.emplace_back([connection = client.connection] {
                while (connection->send({FrameType::compute, 1, pattern(20'000)})) {
                }
            });
        }
        ASSERT_TRUE(server.inbox->next().has_value());
        if (round % 2 == 0) {
            client.connection->close({ErrorKind::unavailable, "closed"});
        } else {
            server.connection->close({ErrorKind::unavailable, "closed"});
        }
        for (std::thread& sender : senders)
            sender.join();
        client.inbox->wait_closed();
        server.inbox->wait_closed();
        EXPECT_EQ(client.inbox->closes(), 1);
    }
}

TEST_P(ConnectionTest, EightyAtOnce) {
    listen();
    std::vector<End> clients;
    std::vector<End> servers;
    for (int i = 0; i < 80; ++i) {
        clients.emplace_back(connect_client());
        servers.emplace_back(server_->accepted->next());
    }
    for (std::size_t i = 0; i < clients.size(); ++i) {
        ASSERT_TRUE(
            clients[i].connection->send({FrameType::compute, i, pattern(10'000, static_cast<std::uint32_t>(i))}));
    }
    for (std::size_t i = 0; i < servers.size(); ++i) {
        std::optional<Frame> frame = servers[i].inbox->next();
        ASSERT_TRUE(frame.has_value());
        EXPECT_EQ(frame->request, i);
        EXPECT_TRUE(frame->payload == pattern(10'000, static_cast<std::uint32_t>(i)));
    }
}

TEST_P(ConnectionTest, GoesWithItsIoContext) {
    std::weak_ptr<Connection> client_gone;
    std::weak_ptr<Connection> server_gone;
    {
        IoThreads io(2);
        Server server(io, tls() ? server_identity_ : nullptr);
        Result<ConnectionPtr> client = connect_now(io, server.address(), tls() ? client_identity_ : nullptr,
                                                   tls() ? std::optional(server_identity_->id()) : std::nullopt);
        ASSERT_TRUE(client.has_value()) << client.error().message;
        ConnectionPtr accepted = server.accepted->next();
        client_gone = *client;
        server_gone = accepted;
        // Each is held by its own handlers alone: a cycle that only the end of the io_context can break.
        (*client)->start([held = *client](Frame&&) {}, [](const Error&) { FAIL() << "nothing closed it"; });
        accepted->start([accepted](Frame&&) {}, [](const Error&) { FAIL() << "nothing closed it"; });
        (*client)->send({FrameType::compute, 1, ByteVector(1 << 20)});
    }
    EXPECT_TRUE(client_gone.expired());
    EXPECT_TRUE(server_gone.expired());
}

INSTANTIATE_TEST_SUITE_P(Kinds, ConnectionTest, testing::Bool(),
                         [](const auto& kind) { return kind.param ? "Tls" : "Plain"; });

}  // namespace
}  // namespace kvasir::test
