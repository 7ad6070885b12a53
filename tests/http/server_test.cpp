#include "http/server.h"

#include <future>

#include "http/file_response.h"
#include "http/http_fixture.h"
#include "http/range.h"

namespace kvasir::http::test {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

Response hello(const Request& request) {
    return json_response(request.method + " " + request.path + " " + request.query + " " + request.body);
}

class ServerTest : public FileTest {};

TEST_F(ServerTest, AnswersSeveralRequestsOnOneConnection) {
    const auto server = start_server(hello);
    const std::string answers =
        raw_answer(*server,
                   "GET /a?b=c HTTP/1.1\r\nHost: x\r\n\r\nPOST /d HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nxyz"
                   "HEAD /e HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    EXPECT_THAT(answers, AllOf(HasSubstr("GET /a b=c "), HasSubstr("POST /d  xyz"), Not(HasSubstr("HEAD /e "))));
    EXPECT_EQ(server->stats().requests, 3U);
    EXPECT_EQ(server->stats().connections, 1U);
}

TEST_F(ServerTest, SendsFilesAndRangesOfThem) {
    const FileContent content = file_of(3'000'000);
    const auto server = start_server([&](const Request& request) { return file_response(request, content); });
    Client client{ClientOptions{}};
    const Got whole = get(client, url_of(*server)).value();
    EXPECT_EQ(whole.answer.status, 200U);
    EXPECT_TRUE(whole.body == bytes_);
    EXPECT_EQ(whole.answer.find("etag"), "\"tag\"");
    for (const ByteRange& range : {ByteRange{0, 1}, {2'999'999, 1}, {1'000'000, 1'500'000}, {0, 3'000'000}}) {
        const Got part = get(client, url_of(*server), {{"Range", range_field(range)}}).value();
        EXPECT_EQ(part.answer.status, 206U);
        EXPECT_TRUE(part.body == bytes_.substr(range.first, range.length));
        EXPECT_EQ(part.answer.find("Content-Range"), content_range_field(range, 3'000'000));
    }
    EXPECT_EQ(server->stats().kernel_bytes, server->stats().body_bytes);
    EXPECT_EQ(server->stats().connections, 1U);
}

TEST_F(ServerTest, RefusesRangesBehindTheEndAndHonoursConditions) {
    const FileContent content = file_of(100);
    const auto server = start_server([&](const Request& request) { return file_response(request, content); });
    Client client{ClientOptions{}};
    const Got behind = get(client, url_of(*server), {{"Range", "bytes=100-"}}).value();
    EXPECT_EQ(behind.answer.status, 416U);
    EXPECT_EQ(behind.answer.find("Content-Range"), "bytes */100");
    const auto status = [&](Fields fields) { return get(client, url_of(*server), std::move(fields))->answer.status; };
    EXPECT_EQ(status({{"Range", "bytes=0-1"}, {"If-Range", "\"tag\""}}), 206U);
    EXPECT_EQ(status({{"Range", "bytes=0-1"}, {"If-Range", "\"other\""}}), 200U);
    EXPECT_EQ(status({{"Range", "bytes=0-1"}, {"If-Range", "W/\"tag\""}}), 200U);
    EXPECT_EQ(status({{"If-None-Match", "\"x\", W/\"tag\""}}), 304U);
    EXPECT_EQ(status({{"If-None-Match", "*"}}), 304U);
    EXPECT_EQ(status({{"If-None-Match", "\"x\""}}), 200U);
    const Got head = get(client, url_of(*server), {{"Range", "bytes=0-1"}}, "HEAD").value();
    EXPECT_EQ(head.answer.status, 200U);
    EXPECT_EQ(head.answer.length, 100U);
    EXPECT_TRUE(head.body.empty());
    EXPECT_EQ(server->stats().connections, 1U);
}

TEST_F(ServerTest, AFileThatShrinksEndsTheConnectionNotTheServer) {
    const FileContent content = file_of(4'000'000);
    const auto server = start_server([&](const Request& request) { return file_response(request, content); });
    std::filesystem::resize_file(path("file"), 1000);
    Client client{ClientOptions{}};
    EXPECT_FALSE(get(client, url_of(*server)));
    const Got rest = get(client, url_of(*server), {{"Range", "bytes=0-999"}}).value();
    EXPECT_EQ(rest.body, bytes_.substr(0, 1000));
}

TEST_F(ServerTest, AHandlerThatThrowsIsA500) {
    const auto server = start_server([](const Request&) -> Response { throw std::runtime_error("boom"); });
    Client client{ClientOptions{}};
    const Got answer = get(client, url_of(*server)).value();
    EXPECT_EQ(answer.answer.status, 500U);
    EXPECT_THAT(answer.body, Not(HasSubstr("boom")));
}

TEST_F(ServerTest, FieldsCannotSmuggleOthersIn) {
    const auto server = start_server([](const Request&) {
        Response response = json_response("x");
        response.fields.push_back({"X-Bad", "a\r\nSet-Cookie: b"});
        return response;
    });
    Client client{ClientOptions{}};
    EXPECT_EQ(get(client, url_of(*server))->answer.find("Set-Cookie"), std::nullopt);
}

struct HostileCase {
    const char* name;
    std::string bytes;
    const char* answer;  // how it begins; empty: closed without one
};
class Hostile : public testing::TestWithParam<HostileCase> {};

TEST_P(Hostile, IsAnsweredAndClosed) {
    ServerOptions options = loopback_options();
    options.header_count = 20;
    options.body_bytes = 1000;
    const auto server = start_server(hello, options);
    EXPECT_THAT(raw_answer(*server, GetParam().bytes), StartsWith(GetParam().answer));
    // The server has not suffered.
    Client client{ClientOptions{}};
    EXPECT_EQ(get(client, url_of(*server))->answer.status, 200U);
}

std::string many_fields(int count) {
    std::string text = "GET / HTTP/1.1\r\n";
    for (int i = 0; i < count; ++i)
        text += "A: b\r\n";
    return text + "\r\n";
}

INSTANTIATE_TEST_SUITE_P(
    Http, Hostile,
    testing::Values(HostileCase{"garbage", "\x16\x03\x01 what\r\n\r\n", "HTTP/1.1 400"},
                    HostileCase{"frame", std::string("KVWF\0\0\0\0\0\0\0\0\r\n\r\n", 16), "HTTP/1.1 400"},
                    HostileCase{"long header", "GET / HTTP/1.1\r\nA: " + std::string(60000, 'b'), "HTTP/1.1 431"},
                    HostileCase{"long target", "GET /" + std::string(60000, 'b'), "HTTP/1.1 431"},
                    HostileCase{"many fields", many_fields(21), "HTTP/1.1 431"},
                    HostileCase{"large body", "POST / HTTP/1.1\r\nContent-Length: 1001\r\n\r\n", "HTTP/1.1 413"},
                    HostileCase{"huge body", "POST / HTTP/1.1\r\nContent-Length: 99999999999999\r\n\r\n",
                                "HTTP/1.1 413"},
                    HostileCase{"body without bound",
                                "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n800\r\n" +
                                    std::string(0x800, 'x') + "\r\n0\r\n\r\n",
                                "HTTP/1.1 413"},
                    HostileCase{"negative length", "POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", "HTTP/1.1 400"},
                    HostileCase{"two lengths", "POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
                                "HTTP/1.1 400"},
                    HostileCase{"length and chunks",
                                "POST / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
                                "HTTP/1.1 400"},
                    HostileCase{"absolute target", "GET http://evil/ HTTP/1.1\r\n\r\n", "HTTP/1.1 400"},
                    HostileCase{"version", "GET / HTTP/3.7\r\n\r\n", "HTTP/1.1 400"}),
    [](const auto& hostile) {
        std::string name = hostile.param.name;
        std::ranges::replace(name, ' ', '_');
        return name;
    });

TEST_F(ServerTest, SlowSendersAreLetGo) {
    ServerOptions options = loopback_options();
    options.request_time = milliseconds(100);
    const auto server = start_server(hello, options);
    // None of these is ever complete; each is closed at its deadline, whatever trickles in.
    for (const char* start :
         {"", "GET / HT", "GET / HTTP/1.1\r\nA: b\r\n", "POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nab"}) {
        EXPECT_THAT(raw_answer(*server, start), Not(HasSubstr("200"))) << start;
    }
    EXPECT_EQ(server->stats().requests, 0U);
}

TEST_F(ServerTest, IdleConnectionsAreLetGo) {
    ServerOptions options = loopback_options();
    options.idle_time = milliseconds(50);
    const auto server = start_server(hello, options);
    EXPECT_THAT(raw_answer(*server, "GET /a HTTP/1.1\r\n\r\n"), HasSubstr("GET /a"));
}

TEST_F(ServerTest, WhoDoesNotReadIsLetGo) {
    const FileContent content = file_of(64 << 20);
    ServerOptions options = loopback_options();
    options.stall_time = milliseconds(100);
    const auto server = start_server([&](const Request& request) { return file_response(request, content); }, options);
    RawSocket deaf = RawSocket::connected(server->local_address().port);
    deaf.send("GET / HTTP/1.1\r\n\r\n");
    // Destruction of the session is what frees the place; until then the count says one.
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (server->stats().connections == 0 || server->stats().open > 0) {
        ASSERT_LT(std::chrono::steady_clock::now(), end);
        std::this_thread::yield();
    }
    EXPECT_LT(server->stats().body_bytes, std::uint64_t{64} << 20);
}

TEST_F(ServerTest, ConnectionsAreBoundedInAllAndPerAddress) {
    ServerOptions options = loopback_options();
    options.connections = 3;
    options.per_network = 2;
    const auto server = start_server(hello, options);
    const std::uint16_t port = server->local_address().port;
    RawSocket first = RawSocket::connected(port);
    RawSocket second = RawSocket::connected(port);
    EXPECT_THAT(raw_answer(*server, ""), StartsWith("HTTP/1.1 503"));
    // Another address still has room, until all places are taken.
    RawSocket third = RawSocket::connected(port, 2);
    EXPECT_THAT(raw_answer(*server, "", 3), StartsWith("HTTP/1.1 503"));
    third.send("GET /x HTTP/1.1\r\nConnection: close\r\n\r\n");
    EXPECT_GT(third.receive_all().size(), 10U);
    EXPECT_EQ(server->stats().refused, 2U);
}

TEST_F(ServerTest, StoppingFinishesWhatWasAskedAndClosesTheRest) {
    std::promise<void> asked;
    std::promise<void> release;
    std::shared_future<void> released = release.get_future().share();
    auto server = start_server([&](const Request&) {
        asked.set_value();
        released.wait();
        return json_response("finished");
    });
    RawSocket idle = RawSocket::connected(server->local_address().port);
    std::future<std::string> busy =
        std::async(std::launch::async, [&] { return raw_answer(*server, "GET / HTTP/1.1\r\n\r\n"); });
    asked.get_future().wait();
    std::future<void> stopped = std::async(std::launch::async, [&] { server->stop(std::chrono::seconds(60)); });
    EXPECT_TRUE(idle.receive_all().empty());
    release.set_value();
    EXPECT_THAT(busy.get(), AllOf(HasSubstr("finished"), HasSubstr("Connection: close")));
    stopped.wait();
}

TEST_F(ServerTest, StoppingDoesNotWaitForWhoNeverReads) {
    const FileContent content = file_of(64 << 20);
    const auto server = start_server([&](const Request& request) { return file_response(request, content); });
    RawSocket deaf = RawSocket::connected(server->local_address().port);
    deaf.send("GET / HTTP/1.1\r\n\r\n");
    while (server->stats().body_bytes == 0)
        std::this_thread::yield();
    server->stop(milliseconds(10));
    EXPECT_EQ(server->stats().open, 0U);
}

TEST_F(ServerTest, ATakenPortIsUnavailable) {
    const auto server = start_server(hello);
    ServerOptions options = loopback_options();
    options.listen = server->local_address();
    const auto second = Server::start(options, hello);
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().kind, ErrorKind::unavailable);
    EXPECT_THAT(second.error().message, HasSubstr(server->local_address().text()));
    options.listen = {"203.0.113.7", 0};
    EXPECT_EQ(Server::start(options, hello).error().kind, ErrorKind::usage);
    options.listen = {"some.name", 0};
    EXPECT_EQ(Server::start(options, hello).error().kind, ErrorKind::usage);
}

}  // namespace
}  // namespace kvasir::http::test
