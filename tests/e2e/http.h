// Just enough of an HTTP client to talk to `kvasir serve`.
#pragma once

#include <cstdint>
#include <string>

namespace kvasir::e2e {

struct HttpAnswer {
    int status = 0;  // 0: no connection
    std::string body;
};

HttpAnswer http_get(std::uint16_t port, const std::string& target);
HttpAnswer http_post(std::uint16_t port, const std::string& target, const std::string& json);
// Polls /health until it answers 200 or `kPatience` passed.
bool wait_until_healthy(std::uint16_t port);

}  // namespace kvasir::e2e
