// Who may talk to whom, and what each end learns when it may not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "net_fixture.h"
#include "raw_socket.h"

namespace kvasir::test {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

class HandshakeTest : public testing::Test {
  protected:
    std::shared_ptr<const Identity> worker_ = new_identity();
    std::shared_ptr<const Identity> backbone_ = new_identity();
    IoThreads io_{2};
};

Error refused(const Result<ConnectionPtr>& result) {
    EXPECT_FALSE(result.has_value());
    return result ? Error{} : result.error();
}

TEST_F(HandshakeTest, WrongPinNamesBothIds) {
    Server server(io_, worker_);
    NodeId other = new_identity()->id();
    Error error = refused(connect_now(io_, server.address(), backbone_, other));
    EXPECT_EQ(error.kind, ErrorKind::mismatch);
    EXPECT_THAT(error.message, HasSubstr("expected " + to_hex(other)));
    EXPECT_THAT(error.message, HasSubstr(to_hex(worker_->id())));
    EXPECT_THAT(error.message, HasSubstr(server.address().text()));
    // The right one still gets in.
    EXPECT_TRUE(connect_now(io_, server.address(), backbone_, worker_->id()).has_value());
}

TEST_F(HandshakeTest, AdmissionSeesTheProvenId) {
    std::promise<NodeId> asked;
    Server server(io_, worker_, {}, [&](const NodeId& id) {
        asked.set_value(id);
        return true;
    });
    Result<ConnectionPtr> client = connect_now(io_, server.address(), backbone_, worker_->id());
    ASSERT_TRUE(client.has_value()) << client.error().message;
    ConnectionPtr accepted = server.accepted->next();
    ASSERT_NE(accepted, nullptr);
    EXPECT_EQ(accepted->peer(), backbone_->id());
    EXPECT_EQ(asked.get_future().get(), backbone_->id());
}

TEST_F(HandshakeTest, WhoIsNotAdmittedLearnsWhatToDo) {
    std::atomic<int> asked = 0;
    Server server(io_, worker_, {}, [&](const NodeId&) { return ++asked > 1; });
    Result<ConnectionPtr> client = connect_now(io_, server.address(), backbone_, worker_->id());
    Error error;
    if (client) {
        // TLS 1.3 ends the handshake on this end before the other has judged.
        End end(*client);
        end.connection->send({FrameType::hello, 0, pattern(500)});
        error = end.inbox->wait_closed();
    } else {
        error = client.error();
    }
    EXPECT_EQ(error.kind, ErrorKind::usage);
    EXPECT_THAT(error.message, HasSubstr("does not admit this node's id " + to_hex(backbone_->id())));
    EXPECT_THAT(error.message, HasSubstr("--admit"));
    // Nobody was handed over: the next connection is the first.
    Result<ConnectionPtr> second = connect_now(io_, server.address(), backbone_, worker_->id());
    ASSERT_TRUE(second.has_value());
    ConnectionPtr accepted = server.accepted->next();
    ASSERT_NE(accepted, nullptr);
    End there(accepted);
    End here(*second);
    here.connection->send({FrameType::ping, 9, {}});
    std::optional<Frame> frame = there.inbox->next();
    ASSERT_TRUE(frame.has_value());
    EXPECT_EQ(frame->request, 9U);
}

TEST_F(HandshakeTest, TlsMeetsPlain) {
    Server server(io_, nullptr);
    auto client =
        std::async(std::launch::async, [&] { return connect_now(io_, server.address(), backbone_, worker_->id()); });
    End accepted(server.accepted->next());
    Error reason = accepted.inbox->wait_closed();
    EXPECT_EQ(reason.kind, ErrorKind::invalid);
    EXPECT_THAT(reason.message, HasSubstr("the peer speaks TLS"));
    EXPECT_THAT(refused(client.get()).message, HasSubstr("the peer does not speak TLS"));
}

TEST_F(HandshakeTest, PlainMeetsTls) {
    Server server(io_, worker_);
    Result<ConnectionPtr> client = connect_now(io_, server.address(), nullptr, std::nullopt);
    ASSERT_TRUE(client.has_value());
    End end(*client);
    end.connection->send({FrameType::hello, 0, pattern(500)});
    EXPECT_THAT(end.inbox->wait_closed().message, HasSubstr("does it want TLS?"));
}

TEST_F(HandshakeTest, WithoutTlsOnlyLoopback) {
    Error error = refused(connect_now(io_, {"192.0.2.1", 7411}, nullptr, std::nullopt));
    EXPECT_EQ(error.kind, ErrorKind::usage);
    EXPECT_THAT(error.message, HasSubstr("without TLS only loopback"));
    for (const char* host : {"", "0.0.0.0", "::"}) {
        auto listener = Listener::create(io_.context(), {host, 0}, nullptr, nullptr, [](ConnectionPtr) {});
        ASSERT_FALSE(listener.has_value()) << host;
        EXPECT_EQ(listener.error().kind, ErrorKind::usage);
        EXPECT_THAT(listener.error().message, HasSubstr("without TLS only loopback"));
    }
}

TEST_F(HandshakeTest, TlsNeedsAnIdToExpect) {
    Error error = refused(connect_now(io_, {"127.0.0.1", 7411}, backbone_, std::nullopt));
    EXPECT_EQ(error.kind, ErrorKind::usage);
    EXPECT_EQ(refused(connect_now(io_, {"", 7411}, backbone_, worker_->id())).kind, ErrorKind::usage);
    EXPECT_EQ(refused(connect_now(io_, {"127.0.0.1", 0}, backbone_, worker_->id())).kind, ErrorKind::usage);
}

TEST_F(HandshakeTest, PortTakenIsSaid) {
    Server server(io_, worker_);
    auto second = Listener::create(io_.context(), server.address(), worker_, nullptr, [](ConnectionPtr) {});
    ASSERT_FALSE(second.has_value());
    EXPECT_EQ(second.error().kind, ErrorKind::unavailable);
    EXPECT_THAT(second.error().message, HasSubstr(fmt::format("port {} is taken", server.address().port)));
    // Stopping frees it at once.
    server.listener->stop();
    auto third = Listener::create(io_.context(), server.address(), worker_, nullptr, [](ConnectionPtr) {});
    EXPECT_TRUE(third.has_value()) << third.error().message;
}

TEST_F(HandshakeTest, AddressOfAnotherMachineIsRefused) {
    auto listener = Listener::create(io_.context(), {"192.0.2.1", 0}, worker_, nullptr, [](ConnectionPtr) {});
    ASSERT_FALSE(listener.has_value());
    EXPECT_EQ(listener.error().kind, ErrorKind::usage);
    EXPECT_THAT(listener.error().message, HasSubstr("no such address"));
}

TEST_F(HandshakeTest, NobodyListens) {
    std::uint16_t port = RawSocket::silent_listener().port();
    Error error = refused(connect_now(io_, {"127.0.0.1", port}, backbone_, worker_->id()));
    EXPECT_EQ(error.kind, ErrorKind::unavailable);
    EXPECT_THAT(error.message, HasSubstr(fmt::format("127.0.0.1:{}: Connection refused", port)));
    // A name stands for several addresses; all are tried and named.
    error = refused(connect_now(io_, {"localhost", port}, backbone_, worker_->id()));
    EXPECT_EQ(error.kind, ErrorKind::unavailable);
    EXPECT_THAT(error.message, HasSubstr("127.0.0.1"));
}

TEST_F(HandshakeTest, SilenceEndsAtTheDeadline) {
    RawSocket silent = RawSocket::silent_listener();
    Error error = refused(connect_now(io_, {"127.0.0.1", silent.port()}, backbone_, worker_->id(), milliseconds(100)));
    EXPECT_EQ(error.kind, ErrorKind::unavailable);
    EXPECT_THAT(error.message, HasSubstr("too long"));
}

TEST_F(HandshakeTest, NamesAndBothFamiliesWork) {
    std::vector<std::string> hosts = {"127.0.0.1", "localhost"};
    auto six = Listener::create(io_.context(), {"::1", 0}, worker_, nullptr, [](ConnectionPtr) {});
    if (six) hosts.emplace_back("::1");
    auto accepted = std::make_shared<Accepted>();
    auto all = Listener::create(
        io_.context(), {"", 0}, worker_, [](const NodeId&) { return true; },
        [accepted](ConnectionPtr connection) { accepted->add(std::move(connection)); });
    ASSERT_TRUE(all.has_value()) << all.error().message;
    for (const std::string& host : hosts) {
        Result<ConnectionPtr> client = connect_now(io_, {host, (*all)->local_address().port}, backbone_, worker_->id());
        ASSERT_TRUE(client.has_value()) << client.error().message;
        ConnectionPtr there = accepted->next();
        ASSERT_NE(there, nullptr);
        // Never ::ffff:127.0.0.1.
        EXPECT_THAT(there->peer_address(),
                    testing::AnyOf(testing::StartsWith("127.0.0.1:"), testing::StartsWith("[::1]:")));
    }
}

TEST_F(HandshakeTest, HalfOpenOnesAreDroppedAtTheDeadline) {
    ConnectionOptions options;
    options.handshake = milliseconds(50);
    Server server(io_, worker_, options);
    RawSocket silent = RawSocket::connected(server.address().port);
    RawSocket started = RawSocket::connected(server.address().port);
    started.send("\x16\x03\x01\x02");
    silent.receive_all();
    started.receive_all();
    EXPECT_TRUE(connect_now(io_, server.address(), backbone_, worker_->id()).has_value());
}

TEST_F(HandshakeTest, OnePeersUnfinishedOnesDoNotKeepOthersOut) {
    IoThreads one(1);
    Server server(one, worker_);
    std::vector<RawSocket> waiting;
    for (std::size_t i = 0; i < kMaximumHandshakesPerPeer; ++i)
        waiting.push_back(RawSocket::connected(server.address().port, 2));
    RawSocket surplus = RawSocket::connected(server.address().port, 2);
    EXPECT_TRUE(surplus.receive_all().empty());
    EXPECT_TRUE(connect_now(io_, server.address(), backbone_, worker_->id()).has_value());
}

TEST_F(HandshakeTest, UnfinishedOnesAreBounded) {
    IoThreads one(1);
    Server server(one, worker_);
    std::vector<RawSocket> waiting;
    for (std::size_t i = 0; i < kMaximumHandshakes; ++i) {
        const auto from = static_cast<std::uint8_t>(1 + i / kMaximumHandshakesPerPeer);
        waiting.push_back(RawSocket::connected(server.address().port, from));
    }
    RawSocket surplus = RawSocket::connected(server.address().port, 100);
    EXPECT_TRUE(surplus.receive_all().empty());
    waiting.clear();
    // Once the listener has noticed that they went, there is room again.
    auto give_up = std::chrono::steady_clock::now() + kPatience;
    bool admitted = false;
    while (!admitted && std::chrono::steady_clock::now() < give_up) {
        admitted = connect_now(io_, server.address(), backbone_, worker_->id()).has_value();
    }
    EXPECT_TRUE(admitted);
}

TEST_F(HandshakeTest, StoppingDropsUnfinishedOnes) {
    Server server(io_, worker_);
    RawSocket silent = RawSocket::connected(server.address().port);
    // The listener has begun the other's handshake by the time this later one is complete.
    ASSERT_TRUE(connect_now(io_, server.address(), backbone_, worker_->id()).has_value());
    server.listener.reset();
    silent.receive_all();
}

TEST_F(HandshakeTest, NothingIsLeftWhenTheIoContextGoes) {
    auto token = std::make_shared<int>(0);
    std::weak_ptr<int> released = token;
    RawSocket silent = RawSocket::silent_listener();
    {
        IoThreads io(2);
        auto listener = Listener::create(
            io.context(), {"127.0.0.1", 0}, worker_, [token](const NodeId&) { return true; },
            [token](ConnectionPtr) {});
        ASSERT_TRUE(listener.has_value());
        RawSocket half_open = RawSocket::connected((*listener)->local_address().port);
        half_open.send("\x16\x03\x01");
        connect(io.context(), {"127.0.0.1", silent.port()}, backbone_, worker_->id(), std::chrono::hours(1),
                [token](Result<ConnectionPtr>) { FAIL() << "nobody answered"; });
        token.reset();
        io.stop();
    }
    EXPECT_TRUE(released.expired());
}

}  // namespace
}  // namespace kvasir::test
