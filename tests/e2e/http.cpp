#include "e2e/http.h"

#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <thread>

#include "e2e/cluster.h"

namespace kvasir::e2e {
namespace {

namespace beast = boost::beast;
namespace http = beast::http;
using boost::asio::ip::tcp;

HttpAnswer ask(std::uint16_t port, const http::request<http::string_body>& request) {
    boost::asio::io_context context;
    beast::tcp_stream stream(context);
    HttpAnswer answer;
    http::response<http::string_body> response;
    beast::flat_buffer buffer;
    stream.expires_after(kPatience);
    stream.async_connect(tcp::endpoint(boost::asio::ip::address_v4::loopback(), port), [&](auto refused) {
        if (refused) return;
        http::async_write(stream, request, [&](auto error, std::size_t) {
            if (error) return;
            http::async_read(stream, buffer, response, [&](auto failed, std::size_t) {
                if (!failed) answer = {static_cast<int>(response.result_int()), response.body()};
            });
        });
    });
    context.run();
    return answer;
}

http::request<http::string_body> make_request(http::verb verb, const std::string& target) {
    http::request<http::string_body> request(verb, target, 11);
    request.set(http::field::host, "localhost");
    request.set(http::field::connection, "close");
    return request;
}

}  // namespace

HttpAnswer http_get(std::uint16_t port, const std::string& target) {
    return ask(port, make_request(http::verb::get, target));
}

HttpAnswer http_post(std::uint16_t port, const std::string& target, const std::string& json) {
    auto request = make_request(http::verb::post, target);
    request.set(http::field::content_type, "application/json");
    request.body() = json;
    request.prepare_payload();
    return ask(port, request);
}

bool wait_until_healthy(std::uint16_t port) {
    auto end = std::chrono::steady_clock::now() + kPatience;
    while (std::chrono::steady_clock::now() < end) {
        if (http_get(port, "/health").status == 200) return true;
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return false;
}

}  // namespace kvasir::e2e
