// A real server on a real loopback port, with TLS.
#include "worker/server.h"

#include <gmock/gmock.h>

#include <future>

#include "net/net_fixture.h"
#include "worker/worker_fixture.h"

namespace kvasir::worker_test {
namespace {

using test::Inbox;
using test::IoThreads;
using test::kPatience;
using ::testing::HasSubstr;

// A backbone's end of a connection.
class Client {
  public:
    explicit Client(ConnectionPtr connection) : connection_(std::move(connection)), inbox_(std::make_shared<Inbox>()) {
        connection_->set_payload_limit(kPayloadLimit);
        connection_->start([inbox = inbox_](Frame&& frame) { inbox->add(std::move(frame)); },
                           [inbox = inbox_](const Error& error) { inbox->closed(error); });
    }
    ~Client() { connection_->close({ErrorKind::unavailable, "the test is over"}); }
    Client(const Client&) = delete;
    Client& operator=(const Client&) = delete;

    void send(FrameType type, std::uint64_t request, ByteVector payload = {}) {
        EXPECT_TRUE(connection_->send({type, request, std::move(payload)}));
    }
    Frame next() { return inbox_->next().value_or(Frame{}); }
    Error wait_closed() { return inbox_->wait_closed(); }

    Welcome greet(const Digest& model, Arithmetic arithmetic = Arithmetic::ggml_cpu) {
        Hello hello;
        hello.build = "backbone under test";
        hello.arithmetics = {wire_name(arithmetic)};
        hello.model_id = model;
        hello.payload_limit = kPayloadLimit;
        send(FrameType::hello, 0, encode(hello));
        const Frame frame = next();
        EXPECT_EQ(frame.type, FrameType::welcome);
        return decode_welcome(frame.payload).value_or(Welcome{});
    }
    void ask(std::uint64_t request, const Question& question) {
        send(FrameType::compute, request, encode(question.compute()));
    }
    ByteVector result(std::uint64_t request) {
        const Frame frame = next();
        EXPECT_EQ(frame.type, FrameType::result);
        EXPECT_EQ(frame.request, request);
        const auto result = decode_result(frame.payload);
        if (!result) return {};
        return {result->rows.begin(), result->rows.end()};
    }
    WireError error(std::uint64_t request) {
        const Frame frame = next();
        EXPECT_EQ(frame.type, FrameType::error);
        EXPECT_EQ(frame.request, request);
        return decode_error(frame.payload).value_or(WireError{});
    }

  private:
    ConnectionPtr connection_;
    std::shared_ptr<Inbox> inbox_;
};

class ServerTest : public WorkerTest {
  protected:
    ServerTest() {
        select_exact_kernels();
        ServerOptions options;
        options.listen = {"127.0.0.1", 0};
        options.identity = worker_;
        options.admitted = {backbone_->id()};
        options.threads = 2;
        options.io_threads = 2;
        auto server = Server::bind(options);
        EXPECT_TRUE(server) << server.error().message;
        server_ = std::move(*server);
    }
    void serve() {
        EXPECT_TRUE(server_->serve(open_store({write_slice_of(model_, "a.gguf", {{0, 0, 5}, {2, 0, 8}, {4, 0, 8}}),
                                               write_slice_of(model_, "b.gguf", {{0, 4, 3}})})));
    }
    Result<ConnectionPtr> connect_as(const std::shared_ptr<const Identity>& identity) {
        auto promise = std::make_shared<std::promise<Result<ConnectionPtr>>>();
        auto future = promise->get_future();
        connect(io_.context(), server_->local_address(), identity, worker_->id(), kPatience,
                [promise](Result<ConnectionPtr> result) { promise->set_value(std::move(result)); });
        return future.get();
    }
    std::unique_ptr<Client> connect_client() {
        auto connection = connect_as(backbone_);
        if (!connection) throw std::runtime_error(connection.error().message);
        return std::make_unique<Client>(std::move(*connection));
    }

    const std::shared_ptr<const Identity> worker_ = std::make_shared<Identity>(*Identity::generate());
    const std::shared_ptr<const Identity> backbone_ = std::make_shared<Identity>(*Identity::generate());
    std::unique_ptr<Server> server_;
    IoThreads io_;
};

TEST_F(ServerTest, ServesTheEnginesBytes) {
    serve();
    auto client = connect_client();
    const Welcome welcome = client->greet(server_->store().model_id());
    EXPECT_THAT(welcome.pieces, ::testing::ElementsAre(Piece{0, 0, 7}, Piece{2, 0, 8}, Piece{4, 0, 8}));
    EXPECT_EQ(welcome.epoch, kEpoch);
    EXPECT_GE(welcome.window, 1U);
    for (std::uint32_t layer : {0, 2}) {
        for (std::uint32_t rows : {1, 3, 40}) {
            const Question question = ask(layer, rows, 4, 0, 7);
            client->ask(rows, question);
            EXPECT_TRUE(same_bits(client->result(rows), answer(question))) << "layer " << layer << ", rows " << rows;
        }
    }
    EXPECT_EQ(server_->stats().computed.pairs, 2U * 44 * 4);
}

TEST_F(ServerTest, RefusesBadRequestsAndLivesOn) {
    serve();
    auto client = connect_client();
    client->greet(server_->store().model_id());
    const Question good = ask(0, 2, 2, 0, 7);

    Question bad = good;
    bad.epoch = 1;
    client->ask(1, bad);
    EXPECT_EQ(client->error(1).code, WireErrorCode::epoch);
    bad = good;
    bad.layer = 1;
    client->ask(2, bad);
    EXPECT_EQ(client->error(2).code, WireErrorCode::not_held);
    bad = good;
    bad.pairs[0].expert = 7;
    client->ask(3, bad);
    EXPECT_EQ(client->error(3).code, WireErrorCode::not_held);
    bad = good;
    bad.hidden = 16;
    client->ask(4, bad);
    EXPECT_EQ(client->error(4).code, WireErrorCode::bad_request);
    bad = good;
    bad.recipe = Recipe{.activation = Activation::relu_squared, .gated = false};
    client->ask(5, bad);
    EXPECT_EQ(client->error(5).code, WireErrorCode::recipe);
    client->send(FrameType::compute, 6, ByteVector(17));
    EXPECT_EQ(client->error(6).code, WireErrorCode::bad_request);
    client->send(FrameType::update, 7);
    EXPECT_EQ(client->error(7).code, WireErrorCode::bad_request);
    client->send(FrameType::ping, 8);
    EXPECT_EQ(client->next().type, FrameType::pong);

    client->ask(9, good);
    EXPECT_TRUE(same_bits(client->result(9), answer(good)));
}

TEST_F(ServerTest, AnotherModelsBackboneIsToldSo) {
    serve();
    auto client = connect_client();
    Hello hello;
    hello.arithmetics = {wire_name(Arithmetic::ggml_cpu)};
    hello.payload_limit = kPayloadLimit;
    client->send(FrameType::hello, 0, encode(hello));
    const WireError error = client->error(0);
    EXPECT_EQ(error.code, WireErrorCode::model);
    EXPECT_THAT(error.text, HasSubstr("model id"));
    client->wait_closed();
}

// … whatever they compute in.
TEST_F(ServerTest, ServesSeveralBackbonesAtOnce) {
    serve();
    constexpr int kClients = 4;
    constexpr std::uint64_t kRequests = 20;
    std::vector<std::vector<Question>> questions(kClients);
    for (int c = 0; c < kClients; ++c) {
        for (std::uint64_t i = 0; i < kRequests; ++i) {
            const Question asked = ask(2 * (i % 3), 1 + i % 5, 3, 0, 7);
            questions[static_cast<std::size_t>(c)].push_back(c % 2 == 0 ? asked : portable(asked));
        }
    }
    std::vector<std::future<void>> clients;
    for (int c = 0; c < kClients; ++c) {
        clients.push_back(std::async(std::launch::async, [&, c] {
            auto client = connect_client();
            const std::vector<Question>& own = questions[static_cast<std::size_t>(c)];
            client->greet(server_->store().model_id(), own.front().arithmetic);
            for (std::uint64_t i = 0; i < kRequests; ++i) {
                client->ask(i + 1, own[i]);
                EXPECT_TRUE(same_bits(client->result(i + 1), answer(own[i])));
            }
        }));
    }
    for (auto& client : clients)
        client.get();
    EXPECT_EQ(server_->stats().computed.jobs, kClients * kRequests);
}

TEST_F(ServerTest, AStrangerIsNotAdmitted) {
    serve();
    const auto stranger = std::make_shared<Identity>(*Identity::generate());
    auto connection = connect_as(stranger);
    if (connection) {  // TLS 1.3 lets the client finish first
        Client client(std::move(*connection));
        EXPECT_THAT(client.wait_closed().message, HasSubstr(to_hex(stranger->id())));
    }
    auto client = connect_client();
    EXPECT_EQ(client->greet(server_->store().model_id()).epoch, kEpoch);
}

TEST_F(ServerTest, ThePortIsTakenBeforeTheSlicesAreThere) {
    ServerOptions options;
    options.listen = server_->local_address();
    options.identity = worker_;
    const auto second = Server::bind(options);
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().kind, ErrorKind::unavailable);
    // A backbone that comes early is answered once the slices are mapped.
    auto early = std::async(std::launch::async, [this] { return connect_client(); });
    serve();
    EXPECT_EQ(early.get()->greet(server_->store().model_id()).epoch, kEpoch);
}

TEST_F(ServerTest, DrainsPolitely) {
    serve();
    auto client = connect_client();
    client->greet(server_->store().model_id());
    const Question question = ask(2, 3, 2);
    client->ask(1, question);
    EXPECT_TRUE(same_bits(client->result(1), answer(question)));
    EXPECT_TRUE(server_->drain(kLongWait));
    EXPECT_EQ(client->next().type, FrameType::drain);
    client->wait_closed();
    EXPECT_EQ(server_->stats().sessions, 0U);
    EXPECT_FALSE(connect_as(backbone_));
}

TEST_F(ServerTest, MayBeDestroyedWithBackbonesConnected) {
    serve();
    auto client = connect_client();
    client->greet(server_->store().model_id());
    client->ask(1, ask(2, 40, 4));
    server_.reset();
    client->wait_closed();
}

}  // namespace
}  // namespace kvasir::worker_test
