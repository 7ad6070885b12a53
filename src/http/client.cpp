#include "http/client.h"

#include <openssl/ssl.h>

#include <algorithm>
#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <optional>

#include "http/text.h"

namespace kvasir::http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace bhttp = beast::http;
using asio::ip::tcp;
using boost::system::error_code;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::uint32_t kHeaderLimit = 64 << 10;
constexpr milliseconds kCancelPoll{100};

// A failure before any byte of an answer: the server has closed a connection that it need not keep.
struct CallFailure {
    Error error;
    bool stale = false;
};

bool is_redirect(unsigned status) {
    return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

}  // namespace

class Client::Core {
  public:
    explicit Core(ClientOptions options) : options_(std::move(options)) {}

    Result<Answer> call(Call call) {
        const bool follow = options_.redirects > 0 && (call.method == "GET" || call.method == "HEAD");
        for (int hop = 0;; ++hop) {
            Result<Answer> answer = call_once(call);
            if (!answer) return fail(answer.error().within(call.url.text()));
            const std::optional<std::string_view> location = answer->find("Location");
            if (!follow || !is_redirect(answer->status) || !location) return answer;
            if (hop == options_.redirects) {
                return fail(ErrorKind::invalid, "{}: redirected more than {} times", call.url.text(),
                            options_.redirects);
            }
            Result<Url> next = next_url(call.url, *location);
            if (!next) return fail(next.error().within(call.url.text()));
            call.url = std::move(*next);
        }
    }

    Result<std::size_t> read(std::span<std::byte> out) {
        if (!parser_) return fail(ErrorKind::internal, "there is no answer to read");
        if (out.empty() || finished_) return std::size_t{0};
        Result<std::size_t> count = left_ ? read_plain(out) : read_coded(out);
        if (!count) {
            close();
            return fail(count.error().within(url_.text()));
        }
        if (Status fast = keep_pace(*count); !fast) {
            close();
            return fail(fast.error().within(url_.text()));
        }
        return count;
    }

    Result<std::string> read_all(std::uint64_t limit) {
        if (left_ && *left_ > limit) return too_long(*left_, limit);
        std::string text;
        std::array<std::byte, 1 << 16> chunk;
        for (;;) {
            Result<std::size_t> count = read(chunk);
            if (!count) return fail(count.error());
            if (*count == 0) return text;
            if (text.size() + *count > limit) return too_long(text.size() + *count, limit);
            text.append(reinterpret_cast<const char*>(chunk.data()), *count);
        }
    }

    void close() {
        error_code ignored;
        if (stream_) stream_->next_layer().close(ignored);
        if (socket_) socket_->close(ignored);
        stream_.reset();
        socket_.reset();
        connected_.reset();
        buffer_.clear();
        finished_ = true;
    }

  private:
    using Parser = bhttp::response_parser<bhttp::buffer_body>;
    using TlsStream = asio::ssl::stream<tcp::socket>;

    tl::unexpected<Error> too_long(std::uint64_t size, std::uint64_t limit) {
        close();
        return fail(ErrorKind::invalid, "{}: the answer has {} bytes or more, at most {} are taken", url_.text(), size,
                    limit);
    }

    Result<Url> next_url(const Url& from, std::string_view location) const {
        Result<Url> next = resolve(from, location);
        if (!next) return fail(ErrorKind::invalid, "redirected to nowhere: {}", next.error().message);
        if (from.secure && !next->secure) {
            return fail(ErrorKind::invalid, "redirected to {}, which is not encrypted", printable(next->text(), 200));
        }
        if (options_.trust.pin && !next->same_origin(from)) {
            return fail(ErrorKind::invalid, "redirected to {}: only the pinned server is trusted",
                        printable(next->text(), 200));
        }
        return next;
    }

    // Runs one asynchronous operation to its end, its deadline or the caller's wish. `start` gets the completion
    // handler, whose size argument ends up in `count_`.
    template <class Start>
    error_code wait(milliseconds time, const Start& start) {
        std::optional<error_code> outcome;
        start([&](error_code error, std::size_t count) {
            outcome = error;
            count_ = count;
        });
        context_.restart();
        const auto deadline = steady_clock::now() + time;
        while (!outcome) {
            const auto left = deadline - steady_clock::now();
            const bool cancelled = options_.cancel != nullptr && *options_.cancel;
            if (cancelled || left <= left.zero()) {
                abandon();
                return cancelled ? asio::error::operation_aborted : asio::error::timed_out;
            }
            context_.run_for(std::min<steady_clock::duration>(left, kCancelPoll));
        }
        return *outcome;
    }

    // Ends what is pending; its handler must have run before what it refers to goes.
    void abandon() {
        error_code ignored;
        if (resolver_) resolver_->cancel();
        if (stream_) stream_->next_layer().close(ignored);
        if (socket_) socket_->close(ignored);
        context_.restart();
        context_.run();
    }

    template <class Use>
    void with_stream(const Use& use) {
        stream_ ? use(*stream_) : use(*socket_);
    }

    Result<Answer> call_once(const Call& call) {
        url_ = call.url;
        const bool kept = drained() && connected_ && connected_->same_origin(call.url);
        if (!kept) {
            close();
            if (Status open = connect(call.url); !open) return fail(open.error());
        }
        tl::expected<Answer, CallFailure> answer = exchange(call);
        const bool repeatable = call.method == "GET" || call.method == "HEAD";
        if (!answer && kept && answer.error().stale && repeatable) {
            close();
            if (Status open = connect(call.url); !open) return fail(open.error());
            answer = exchange(call);
        }
        if (answer) return std::move(*answer);
        close();
        return fail(answer.error().error);
    }

    // Whether the connection can take another request: nothing of the last answer is left, and it may be kept.
    bool drained() const { return parser_ && finished_ && parser_->get().keep_alive(); }

    Status connect(const Url& url) {
        resolver_.emplace(context_);
        tcp::resolver::results_type found;
        const auto start = steady_clock::now();
        error_code error = wait(options_.connect_time, [&](auto done) {
            resolver_->async_resolve(url.address.host, std::to_string(url.address.port), tcp::resolver::numeric_service,
                                     [&found, done](error_code failed, tcp::resolver::results_type results) {
                                         found = std::move(results);
                                         done(failed, 0);
                                     });
        });
        if (error) return failure(error, fmt::format("cannot look up '{}'", url.address.host));
        std::size_t others = found.size();
        for (const auto& entry : found) {
            const auto left = options_.connect_time - (steady_clock::now() - start);
            if (left <= left.zero()) break;
            // A part of the time for each address: one that swallows everything must not use it all up.
            const auto share = std::chrono::duration_cast<milliseconds>(left / static_cast<int>(others--));
            socket_.emplace(context_);
            error = wait(share, [&](auto done) {
                socket_->async_connect(entry.endpoint(), [done](error_code failed) { done(failed, 0); });
            });
            if (!error) break;
            if (options_.cancel != nullptr && *options_.cancel) break;
        }
        if (error) return failure(error, "cannot connect");
        socket_->set_option(tcp::no_delay(true), error);
        if (url.secure) {
            if (Status secured = secure(url); !secured) return secured;
        }
        connected_ = url;
        return {};
    }

    Status secure(const Url& url) {
        if (!tls_) {
            Result<TlsContextPtr> made = client_context(options_.trust);
            if (!made) return fail(made.error());
            tls_ = *made;
        }
        stream_.emplace(std::move(*socket_), *tls_);
        socket_.reset();
        error_code literal;
        asio::ip::make_address(url.address.host, literal);
        if (literal) SSL_set_tlsext_host_name(stream_->native_handle(), url.address.host.c_str());
        if (!options_.trust.pin) stream_->set_verify_callback(asio::ssl::host_name_verification(url.address.host));
        const error_code error = wait(options_.connect_time, [&](auto done) {
            stream_->async_handshake(TlsStream::client, [done](error_code failed) { done(failed, 0); });
        });
        if (error) {
            const long verdict = SSL_get_verify_result(stream_->native_handle());
            if (verdict != X509_V_OK && error != asio::error::timed_out) {
                // Unspecified is what the check of the name leaves behind.
                const bool name = verdict == X509_V_ERR_UNSPECIFIED;
                return fail(ErrorKind::invalid, "its certificate is not trusted: {}",
                            name ? "it is for another name" : X509_verify_cert_error_string(verdict));
            }
            return failure(error, "no TLS connection");
        }
        if (!options_.trust.pin) return {};
        X509* shown = SSL_get0_peer_certificate(stream_->native_handle());
        const Digest pin = shown == nullptr ? Digest{} : pin_of(shown);
        if (pin == *options_.trust.pin) return {};
        return fail(ErrorKind::invalid, "its key is {}, pinned is {}: this is another server", to_hex(pin),
                    to_hex(*options_.trust.pin));
    }

    tl::expected<Answer, CallFailure> exchange(const Call& call) {
        std::string request = fmt::format("{} {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: kvasir/{}\r\n", call.method,
                                          call.url.target, call.url.authority(), KVASIR_VERSION);
        for (const Field& field : call.fields)
            request += fmt::format("{}: {}\r\n", field.name, field.value);
        if (!call.body.empty() || call.method == "POST" || call.method == "PUT") {
            request += fmt::format("Content-Length: {}\r\n", call.body.size());
        }
        request += "\r\n" + call.body;
        error_code error = wait(options_.answer_time, [&](auto done) {
            with_stream([&](auto& stream) { asio::async_write(stream, asio::buffer(request), done); });
        });
        if (error) return tl::unexpected(CallFailure{describe(error, "cannot send"), error != asio::error::timed_out});

        // Answers in between (100, 103) are none.
        do {
            parser_.emplace();
            parser_->header_limit(kHeaderLimit);
            parser_->body_limit(boost::none);
            parser_->skip(call.method == "HEAD");
            error = wait(options_.answer_time, [&](auto done) {
                with_stream([&](auto& stream) { bhttp::async_read_header(stream, buffer_, *parser_, done); });
            });
            if (error) {
                const bool stale =
                    !parser_->got_some() && error != asio::error::timed_out && error != asio::error::operation_aborted;
                return tl::unexpected(CallFailure{describe(error, "no answer"), stale});
            }
        } while (parser_->get().result_int() / 100 == 1);
        return take_answer(call);
    }

    Answer take_answer(const Call& call) {
        Answer answer;
        answer.url = call.url;
        answer.status = parser_->get().result_int();
        for (const auto& field : parser_->get()) {
            answer.fields.push_back(
                {std::string(std::string_view(field.name_string())), std::string(std::string_view(field.value()))});
        }
        left_.reset();
        if (const auto length = parser_->content_length()) answer.length = *length;
        finished_ = parser_->is_done();
        const bool bodiless = call.method == "HEAD" || answer.status == 204 || answer.status == 304;
        if (bodiless) finished_ = true;
        if (!finished_ && answer.length && !parser_->chunked()) left_ = answer.length;
        if (left_ && *left_ == 0) finished_ = true;
        pace_start_ = steady_clock::now();
        pace_bytes_ = 0;
        return answer;
    }

    // A body of known length goes straight from the socket to where it is wanted.
    Result<std::size_t> read_plain(std::span<std::byte> out) {
        out = out.first(std::min<std::uint64_t>(out.size(), *left_));
        std::size_t count = 0;
        if (buffer_.size() > 0) {
            count = asio::buffer_copy(asio::buffer(out.data(), out.size()), buffer_.data());
            buffer_.consume(count);
        } else {
            const error_code error = wait(options_.stall_time, [&](auto done) {
                with_stream([&](auto& stream) { stream.async_read_some(asio::buffer(out.data(), out.size()), done); });
            });
            if (error) return fail(describe(error, fmt::format("the answer ended {} bytes early", *left_)));
            count = count_;
        }
        *left_ -= count;
        finished_ = *left_ == 0;
        return count;
    }

    // Chunked, or as long as the connection lasts.
    Result<std::size_t> read_coded(std::span<std::byte> out) {
        while (!parser_->is_done()) {
            auto& body = parser_->get().body();
            body.data = out.data();
            body.size = out.size();
            error_code error = wait(options_.stall_time, [&](auto done) {
                with_stream([&](auto& stream) { bhttp::async_read_some(stream, buffer_, *parser_, done); });
            });
            if (error == bhttp::error::need_buffer) error = {};
            if (error) return fail(describe(error, "the answer ended early"));
            const std::size_t count = out.size() - body.size;
            if (count > 0) return count;
        }
        finished_ = true;
        return std::size_t{0};
    }

    Status keep_pace(std::size_t count) {
        pace_bytes_ += count;
        const auto now = steady_clock::now();
        if (now - pace_start_ < options_.stall_time) return {};
        if (pace_bytes_ < options_.stall_bytes) {
            return fail(ErrorKind::unavailable, "too slow: {} bytes in {} s", pace_bytes_,
                        std::chrono::duration_cast<std::chrono::seconds>(now - pace_start_).count());
        }
        pace_start_ = now;
        pace_bytes_ = 0;
        return {};
    }

    Error describe(error_code error, const std::string& what) const {
        if (options_.cancel != nullptr && *options_.cancel) return {ErrorKind::unavailable, "interrupted"};
        const bool rules = error.category() == error_code(bhttp::error::bad_version).category() &&
                           error != bhttp::error::end_of_stream && error != bhttp::error::partial_message;
        if (rules) return {ErrorKind::invalid, fmt::format("{}: no valid HTTP/1.1: {}", what, error.message())};
        if (error == asio::error::timed_out) return {ErrorKind::unavailable, what + ": no answer in time"};
        return {ErrorKind::unavailable, fmt::format("{}: {}", what, error.message())};
    }
    Status failure(error_code error, const std::string& what) const { return fail(describe(error, what)); }

    const ClientOptions options_;
    asio::io_context context_{1};
    TlsContextPtr tls_;
    std::optional<tcp::resolver> resolver_;
    std::optional<tcp::socket> socket_;  // of the two, one is there while connected
    std::optional<TlsStream> stream_;
    std::optional<Url> connected_;
    beast::flat_buffer buffer_;
    std::optional<Parser> parser_;
    Url url_;
    std::size_t count_ = 0;              // of the last operation
    std::optional<std::uint64_t> left_;  // of a body of known length
    bool finished_ = true;               // nothing of the answer is left to read
    steady_clock::time_point pace_start_;
    std::uint64_t pace_bytes_ = 0;
};

Client::Client(ClientOptions options) : core_(std::make_unique<Core>(std::move(options))) {}
Client::~Client() = default;
Client::Client(Client&&) noexcept = default;
Client& Client::operator=(Client&&) noexcept = default;

Result<Answer> Client::call(const Call& call) {
    return core_->call(call);
}
Result<std::size_t> Client::read(std::span<std::byte> out) {
    return core_->read(out);
}
Result<std::string> Client::read_all(std::uint64_t limit) {
    return core_->read_all(limit);
}
void Client::close() {
    core_->close();
}

}  // namespace kvasir::http
