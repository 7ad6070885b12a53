#include "http/client.h"

#include <future>

#include "http/http_fixture.h"

namespace kvasir::http::test {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

// A server that says exactly these bytes to each connection, after it has read something, and closes it then.
class Parrot {
  public:
    explicit Parrot(std::string answer) : listener_(RawSocket::silent_listener()), answer_(std::move(answer)) {
        thread_ = std::thread([this] {
            for (;;) {
                const int peer = ::accept(listener_.descriptor(), nullptr, nullptr);
                if (peer < 0) return;
                std::array<char, 4096> buffer{};
                if (::recv(peer, buffer.data(), buffer.size(), 0) > 0) {
                    static_cast<void>(::send(peer, answer_.data(), answer_.size(), MSG_NOSIGNAL));
                }
                ::shutdown(peer, SHUT_WR);
                while (::recv(peer, buffer.data(), buffer.size(), 0) > 0) {
                }
                ::close(peer);
            }
        });
    }
    ~Parrot() {
        ::shutdown(listener_.descriptor(), SHUT_RDWR);
        thread_.join();
    }
    Url url() const { return {false, {"127.0.0.1", listener_.port()}, "/"}; }

  private:
    RawSocket listener_;
    const std::string answer_;
    std::thread thread_;
};

ClientOptions quick() {
    ClientOptions options;
    options.answer_time = milliseconds(200);
    options.stall_time = milliseconds(200);
    return options;
}

Result<Got> answer_to(const std::string& bytes) {
    const Parrot parrot(bytes);
    Client client{ClientOptions{}};
    return get(client, parrot.url());
}

TEST(ClientTest, ReadsBodiesOfEveryKind) {
    EXPECT_EQ(answer_to("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")->body, "hello");
    EXPECT_EQ(
        answer_to("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\n\r\n")->body,
        "hello");
    EXPECT_EQ(answer_to("HTTP/1.0 200 OK\r\n\r\nhello")->body, "hello");
    EXPECT_EQ(answer_to("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")->body, "hi");
    EXPECT_EQ(answer_to("HTTP/1.1 204 No Content\r\n\r\n")->body, "");
    EXPECT_EQ(answer_to("HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n")->body, "");
}

TEST(ClientTest, BrokenAnswersAreErrorsThatNameTheServer) {
    for (const char* bytes :
         {"", "garbage\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel",
          "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel", "HTTP/1.1 200 OK\r\nContent-Le",
          "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nhel",
          "HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nhello"}) {
        const Result<Got> got = answer_to(bytes);
        ASSERT_FALSE(got) << bytes;
        EXPECT_THAT(got.error().message, HasSubstr("http://127.0.0.1:")) << bytes;
    }
    EXPECT_EQ(answer_to("garbage\r\n\r\n").error().kind, ErrorKind::invalid);
    EXPECT_EQ(answer_to("").error().kind, ErrorKind::unavailable);
}

TEST(ClientTest, EndlessHeadersAndBodiesAreBounded) {
    EXPECT_FALSE(answer_to("HTTP/1.1 200 OK\r\nA: " + std::string(200'000, 'b')));
    const Parrot large("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n" + std::string(100, 'x'));
    Client client{ClientOptions{}};
    ASSERT_TRUE(client.call({"GET", large.url(), {}, {}}));
    EXPECT_THAT(client.read_all(99).error().message, HasSubstr("at most 99"));
    const Parrot unsaid("HTTP/1.1 200 OK\r\n\r\n" + std::string(100, 'x'));
    ASSERT_TRUE(client.call({"GET", unsaid.url(), {}, {}}));
    EXPECT_FALSE(client.read_all(99));
}

TEST(ClientTest, SilenceEndsAtItsDeadline) {
    const RawSocket silent = RawSocket::silent_listener();
    Client client(quick());
    const Result<Answer> answer = client.call({"GET", {false, {"127.0.0.1", silent.port()}, "/"}, {}, {}});
    ASSERT_FALSE(answer);
    EXPECT_EQ(answer.error().kind, ErrorKind::unavailable);
    EXPECT_THAT(answer.error().message, HasSubstr("no answer in time"));
}

TEST(ClientTest, ABodyThatStallsEndsAtItsDeadline) {
    std::promise<void> done;
    std::shared_future<void> over = done.get_future().share();
    RawSocket listener = RawSocket::silent_listener();
    std::thread half([&] {
        const int peer = ::accept(listener.descriptor(), nullptr, nullptr);
        constexpr std::string_view kHalf = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello";
        static_cast<void>(::send(peer, kHalf.data(), kHalf.size(), MSG_NOSIGNAL));
        over.wait();
        ::close(peer);
    });
    Client client(quick());
    const Result<Got> got = get(client, {false, {"127.0.0.1", listener.port()}, "/"});
    EXPECT_THAT(got.error().message, HasSubstr("no answer in time"));
    done.set_value();
    half.join();
}

TEST(ClientTest, CancellingEndsAWait) {
    const RawSocket silent = RawSocket::silent_listener();
    std::atomic<bool> cancel = false;
    ClientOptions options;
    options.cancel = &cancel;
    Client client(options);
    std::future<Result<Answer>> answer = std::async(std::launch::async, [&] {
        return client.call({"GET", {false, {"127.0.0.1", silent.port()}, "/"}, {}, {}});
    });
    cancel = true;
    EXPECT_THAT(answer.get().error().message, HasSubstr("interrupted"));
}

TEST(ClientTest, ARefusedConnectionIsUnavailable) {
    std::uint16_t port = 0;
    {
        const RawSocket gone = RawSocket::silent_listener();
        port = gone.port();
    }
    Client client{ClientOptions{}};
    const Result<Answer> answer = client.call({"GET", {false, {"127.0.0.1", port}, "/"}, {}, {}});
    EXPECT_EQ(answer.error().kind, ErrorKind::unavailable);
}

TEST(ClientTest, AConnectionThatTheServerClosedMeanwhileIsOpenedAgain) {
    ServerOptions options = loopback_options();
    options.idle_time = milliseconds(1);
    const auto server = start_server([](const Request&) { return json_response("x"); }, options);
    Client client{ClientOptions{}};
    for (int i = 0; i < 20; ++i) {
        ASSERT_TRUE(get(client, url_of(*server)));
        while (server->stats().open > 0)
            std::this_thread::yield();
    }
    EXPECT_EQ(server->stats().requests, 20U);
}

TEST(ClientTest, SendsBodies) {
    const auto server = start_server([](const Request& request) { return json_response(request.body); });
    Client client{ClientOptions{}};
    ASSERT_TRUE(client.call({"POST", url_of(*server), {{"Content-Type", "text/plain"}}, "some text"}));
    EXPECT_EQ(client.read_all(100).value(), "some text");
    ASSERT_TRUE(client.call({"POST", url_of(*server), {{"Expect", "100-continue"}}, std::string(500'000, 'y')}));
    EXPECT_EQ(client.read_all(1 << 20)->size(), 500'000U);
}

Handler redirecting(const std::string& where) {
    return [where](const Request& request) {
        Response response = json_response("moved");
        if (request.path == "/end") return json_response("here");
        response.status = 302;
        response.fields.push_back({"Location", where});
        return response;
    };
}

TEST(ClientTest, FollowsRedirectsAcrossServersAndNotForever) {
    const auto there = start_server(redirecting("/loop"));
    const auto here = start_server(redirecting(url_of(*there, "/end").text()));
    Client client{ClientOptions{}};
    const Got got = get(client, url_of(*here)).value();
    EXPECT_EQ(got.body, "here");
    EXPECT_EQ(got.answer.url.text(), url_of(*there, "/end").text());
    EXPECT_THAT(get(client, url_of(*there)).error().message, HasSubstr("more than 5 times"));
    const auto astray = start_server(redirecting("ftp://x/"));
    EXPECT_THAT(get(client, url_of(*astray)).error().message, HasSubstr("redirected to nowhere"));
    ClientOptions options;
    options.redirects = 0;
    Client strict(options);
    EXPECT_EQ(get(strict, url_of(*here))->answer.status, 302U);
    // What was to be done once is not done again elsewhere.
    EXPECT_EQ(get(client, url_of(*here), {}, "POST")->answer.status, 302U);
}

class TlsTest : public FileTest {
  protected:
    std::unique_ptr<Server> secure_server(const Handler& handler, const std::string& pem) {
        EXPECT_TRUE(make_self_signed(path(pem)));
        ServerOptions options = loopback_options();
        options.tls = TlsFiles{path(pem), path(pem)};
        return start_server(handler, options);
    }
    static Result<Got> get_with(const Trust& trust, const Url& url) {
        ClientOptions options;
        options.trust = trust;
        Client client(options);
        return get(client, url);
    }
};

TEST_F(TlsTest, APinnedServerIsTrustedAndNoOther) {
    const FileContent content = file_of(2'000'000);
    const auto server = secure_server([&](const Request& request) { return file_response(request, content); }, "a.pem");
    const Url url = url_of(*server, "/", true);
    const Digest pin = pin_of(path("a.pem")).value();
    const Result<Got> got = get_with({{}, pin}, url);
    ASSERT_TRUE(got) << got.error().message;
    EXPECT_TRUE(got->body == bytes_);
    EXPECT_EQ(server->stats().kernel_bytes, 0U);
    Digest other = pin;
    other[0] ^= std::byte{1};
    const Result<Got> refused = get_with({{}, other}, url);
    EXPECT_EQ(refused.error().kind, ErrorKind::invalid);
    EXPECT_THAT(refused.error().message, HasSubstr("another server"));
    EXPECT_THAT(get_with({}, url).error().message, HasSubstr("not trusted"));
    // Made once, kept from then on, and not for others to read.
    ASSERT_TRUE(make_self_signed(path("a.pem")));
    EXPECT_EQ(pin_of(path("a.pem")).value(), pin);
    EXPECT_EQ(std::filesystem::status(path("a.pem")).permissions(),
              std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
}

TEST_F(TlsTest, APinnedServerCannotSendItsClientsElsewhere) {
    const auto other = start_server([](const Request&) { return json_response("stolen"); });
    const auto server = secure_server(redirecting(url_of(*other).text()), "a.pem");
    const Result<Got> got = get_with({{}, pin_of(path("a.pem")).value()}, url_of(*server, "/", true));
    ASSERT_FALSE(got);
    EXPECT_THAT(got.error().message, HasSubstr("not encrypted"));
    const auto twin = secure_server([](const Request&) { return json_response("stolen"); }, "b.pem");
    const auto sender = secure_server(redirecting(url_of(*twin, "/", true).text()), "a.pem");
    EXPECT_THAT(get_with({{}, pin_of(path("a.pem")).value()}, url_of(*sender, "/", true)).error().message,
                HasSubstr("only the pinned server"));
}

TEST_F(TlsTest, AnAuthorityOfOnesOwnIsTrustedForTheNameOnTheCertificate) {
    const auto run = [&](const std::string& command) {
        return std::system(("cd " + path("").string() + " && " + command + " >/dev/null 2>&1").c_str());
    };
    ASSERT_EQ(run("openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout ca.key -out ca.pem "
                  "-days 2 -subj /CN=authority"),
              0);
    ASSERT_EQ(run("openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout s.key -out s.csr "
                  "-subj /CN=server && printf 'subjectAltName=IP:127.0.0.1' > ext && openssl x509 -req -in s.csr "
                  "-CA ca.pem -CAkey ca.key -CAcreateserial -out s.pem -days 2 -extfile ext"),
              0);
    ServerOptions options = loopback_options();
    options.tls = TlsFiles{path("s.pem"), path("s.key")};
    const auto server = start_server([](const Request&) { return json_response("secret"); }, options);
    Url url = url_of(*server, "/", true);
    const Result<Got> got = get_with({path("ca.pem"), {}}, url);
    ASSERT_TRUE(got) << got.error().message;
    EXPECT_EQ(got->body, "secret");
    url.address.host = "localhost";  // not on the certificate
    EXPECT_THAT(get_with({path("ca.pem"), {}}, url).error().message, HasSubstr("another name"));
    EXPECT_EQ(get_with({path("nothing.pem"), {}}, url).error().kind, ErrorKind::usage);
}

TEST_F(TlsTest, AServerNeedsItsOwnKey) {
    ASSERT_TRUE(make_self_signed(path("a.pem")));
    ASSERT_TRUE(make_self_signed(path("b.pem")));
    ServerOptions options = loopback_options();
    options.tls = TlsFiles{path("a.pem"), path("b.pem")};
    const auto server = Server::start(options, [](const Request&) { return json_response("x"); });
    ASSERT_FALSE(server);
    EXPECT_EQ(server.error().kind, ErrorKind::usage);
}

TEST_F(TlsTest, PlainTextOnATlsPortIsNoAnswer) {
    ServerOptions options = loopback_options();
    ASSERT_TRUE(make_self_signed(path("a.pem")));
    options.tls = TlsFiles{path("a.pem"), path("a.pem")};
    options.request_time = milliseconds(200);
    const auto server = start_server([](const Request&) { return json_response("x"); }, options);
    EXPECT_THAT(raw_answer(*server, "GET / HTTP/1.1\r\n\r\n"), testing::Not(HasSubstr("200")));
    EXPECT_TRUE(raw_answer(*server, "").empty());  // a handshake that never comes
}

}  // namespace
}  // namespace kvasir::http::test
