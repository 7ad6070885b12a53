// An HTTP/1.1 client that waits, but never for long: every step has a deadline and looks at a `cancel` flag. (Looking
// up a name may take longer than that: the system's resolver has time-outs of its own and cannot be interrupted.)
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <span>
#include <string>

#include "http/message.h"
#include "http/tls.h"
#include "http/url.h"

namespace kvasir::http {

struct ClientOptions {
    Trust trust;
    std::chrono::milliseconds connect_time{10'000};  // all addresses of a name, and the TLS handshake
    std::chrono::milliseconds answer_time{30'000};   // from the request to the end of the answer's header
    // A body that brings less than this in so long is given up.
    std::chrono::milliseconds stall_time{20'000};
    std::uint64_t stall_bytes = 8192;
    int redirects = 5;                          // followed for GET and HEAD; 0: handed out as they are
    const std::atomic<bool>* cancel = nullptr;  // when set by anybody: ends with ErrorKind::unavailable
};

struct Call {
    std::string method = "GET";
    Url url;
    Fields fields;
    std::string body;
};

struct Answer {
    unsigned status = 0;
    Fields fields;
    std::optional<std::uint64_t> length;  // of the body, where the server says it
    Url url;                              // whose answer it is, after all redirects

    std::optional<std::string_view> find(std::string_view name) const { return find_field(fields, name); }
};

// One connection at a time, kept open for the next call to the same origin. Not thread-safe. Errors that may pass with
// time (refused, reset, timed out) are ErrorKind::unavailable; an answer that breaks the rules, a server that is not
// the trusted one, and a redirect that must not be followed are ErrorKind::invalid; every message begins with the URL.
class Client {
  public:
    explicit Client(ClientOptions options);
    ~Client();
    Client(Client&& other) noexcept;
    Client& operator=(Client&& other) noexcept;

    // Asks, and reads the answer's header. What is left of an earlier answer is dropped. Redirects from https to http,
    // and of pinned servers to other origins, are refused.
    Result<Answer> call(const Call& call);
    // The next bytes of the body, at most out.size(); 0 at its end. A body that ends early is an error.
    Result<std::size_t> read(std::span<std::byte> out);
    // The whole body of the answer; more than `limit` bytes are refused.
    Result<std::string> read_all(std::uint64_t limit);
    void close();

  private:
    class Core;
    std::unique_ptr<Core> core_;
};

}  // namespace kvasir::http
