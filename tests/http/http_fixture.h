// A server in this process, and ways to talk to it.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "base/temp_directory.h"
#include "http/client.h"
#include "http/file_response.h"
#include "http/server.h"
#include "net/raw_socket.h"

namespace kvasir::http::test {

using kvasir::test::RawSocket;

inline ServerOptions loopback_options() {
    ServerOptions options;
    options.listen = {"127.0.0.1", 0};
    return options;
}

inline std::unique_ptr<Server> start_server(Handler handler, const ServerOptions& options = loopback_options()) {
    Result<std::unique_ptr<Server>> server = Server::start(options, std::move(handler));
    EXPECT_TRUE(server) << server.error().message;
    return std::move(server.value());
}

inline Url url_of(const Server& server, std::string_view target = "/", bool secure = false) {
    return Url{secure, server.local_address(), std::string(target)};
}

// What a server says to these bytes before it closes the connection.
inline std::string raw_answer(const Server& server, std::string_view bytes, std::uint8_t from = 1) {
    RawSocket socket = RawSocket::connected(server.local_address().port, from);
    socket.send(bytes);
    const ByteVector all = socket.receive_all();
    return {reinterpret_cast<const char*>(all.data()), all.size()};
}

struct Got {
    Answer answer;
    std::string body;
};
inline Result<Got> get(Client& client, const Url& url, Fields fields = {}, std::string method = "GET") {
    Result<Answer> answer = client.call({std::move(method), url, std::move(fields), {}});
    if (!answer) return fail(answer.error());
    Result<std::string> body = client.read_all(64 << 20);
    if (!body) return fail(body.error());
    return Got{std::move(*answer), std::move(*body)};
}

// A file of `size` bytes that differ from each other.
class FileTest : public testing::Test {
  protected:
    FileContent file_of(std::uint64_t size, const std::string& name = "file") {
        std::string text(size, '\0');
        std::uint64_t state = size;
        for (char& c : text) {
            state = state * 6364136223846793005U + 1442695040888963407U;
            c = static_cast<char>(state >> 56);
        }
        EXPECT_TRUE(write_text_file(path(name), text));
        bytes_ = text;
        FileContent content;
        content.file = std::make_shared<const File>(File::open(path(name)).value());
        content.size = size;
        content.etag = "\"tag\"";
        return content;
    }
    std::filesystem::path path(std::string_view name) const { return directory_.path() / name; }

    std::string bytes_;  // of the last file

  private:
    TempDirectory directory_ = std::move(*TempDirectory::create("kvasir-http-test-"));
};

}  // namespace kvasir::http::test
