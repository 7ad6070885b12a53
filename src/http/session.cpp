#include "http/session.h"

#include <netinet/tcp.h>
#include <spdlog/spdlog.h>
#include <sys/sendfile.h>
#include <sys/socket.h>

#include <boost/asio/post.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cerrno>
#include <ctime>

#include "http/text.h"

namespace kvasir::http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
using asio::ip::tcp;
using boost::system::error_code;
using std::chrono::steady_clock;

constexpr std::size_t kWriteStep = 256 << 10;     // of an answer in memory, between looks at the clock
constexpr std::uint64_t kSendfileTurn = 8 << 20;  // of a file, before other connections have their turn
constexpr std::size_t kLingerBytes = 256 << 10;   // of what a refused client still sends
constexpr std::chrono::milliseconds kLingerTime{2000};

std::string http_date() {
    const std::time_t now = std::time(nullptr);
    std::tm utc{};
    gmtime_r(&now, &utc);
    std::array<char, 40> text{};
    const std::size_t size = std::strftime(text.data(), text.size(), "%a, %d %b %Y %H:%M:%S GMT", &utc);
    return {text.data(), size};
}

// A field must not be able to begin another one.
bool fits_a_field(std::string_view text) {
    return text.find_first_of("\r\n\0", 0, 3) == std::string_view::npos;
}

template <class Stream>
class StreamSession : public Session, public std::enable_shared_from_this<StreamSession<Stream>> {
  public:
    template <class... Args>
    StreamSession(Peer peer, SessionShare& share, std::function<void()> gone, Args&&... stream)
        : stream_(std::forward<Args>(stream)...),
          timer_(stream_.get_executor()),
          peer_(std::move(peer)),
          share_(share),
          gone_(std::move(gone)) {}

    ~StreamSession() override { gone_(); }

    void start() override {
        asio::post(stream_.get_executor(), [self = this->shared_from_this()] {
            self->allow(self->share_.options.request_time);
            if constexpr (kSecure) {
                self->stream_.async_handshake(asio::ssl::stream_base::server, [self](error_code error) {
                    if (!error) self->read_request();
                });
            } else {
                self->read_request();
            }
        });
    }

    void finish() override {
        asio::post(stream_.get_executor(), [self = this->shared_from_this()] {
            self->last_ = true;
            if (!self->answering_) self->shut();
        });
    }

    void close() override {
        asio::post(stream_.get_executor(), [self = this->shared_from_this()] { self->shut(); });
    }

  private:
    static constexpr bool kSecure = !std::is_same_v<Stream, tcp::socket>;
    using Parser = beast::http::request_parser<beast::http::string_body>;

    tcp::socket& socket() {
        if constexpr (kSecure) {
            return stream_.next_layer();
        } else {
            return stream_;
        }
    }

    // Closes the connection when that much time has passed, unless it is called again. Pending operations then end.
    void allow(std::chrono::milliseconds time) {
        timer_.expires_after(time);
        timer_.async_wait([weak = this->weak_from_this()](error_code error) {
            auto self = weak.lock();
            // A timer that was set anew while this call was already on its way has more time.
            if (!error && self && self->timer_.expiry() <= steady_clock::now()) self->shut();
        });
    }

    void shut() {
        timer_.cancel();
        error_code ignored;
        socket().shutdown(tcp::socket::shutdown_both, ignored);
        socket().close(ignored);
    }

    void read_request() {
        parser_.emplace();
        parser_->header_limit(share_.options.header_bytes);
        parser_->body_limit(share_.options.body_bytes);
        beast::http::async_read_header(
            stream_, buffer_, *parser_,
            [self = this->shared_from_this()](error_code error, std::size_t) { self->header_read(error); });
    }

    void header_read(error_code error) {
        if (error) return refuse(error);
        answering_ = true;
        allow(share_.options.request_time);
        const auto fields = std::distance(parser_->get().begin(), parser_->get().end());
        if (static_cast<std::uint64_t>(fields) > share_.options.header_count) {
            return refuse(431, "too many header fields");
        }
        if (equal_ignoring_case(std::string_view(parser_->get()["Expect"]), "100-continue")) {
            head_ = "HTTP/1.1 100 Continue\r\n\r\n";
            return asio::async_write(stream_, asio::buffer(head_),
                                     [self = this->shared_from_this()](error_code failed, std::size_t) {
                                         if (!failed) self->read_body();
                                     });
        }
        read_body();
    }

    void read_body() {
        beast::http::async_read(stream_, buffer_, *parser_,
                                [self = this->shared_from_this()](error_code failed, std::size_t) {
                                    failed ? self->refuse(failed) : self->answer();
                                });
    }

    // What could not be read is answered where there is somebody who might understand it.
    void refuse(error_code failure) {
        using beast::http::error;
        if (failure == error::header_limit) return refuse(431, "the request's header is too long");
        if (failure == error::body_limit) return refuse(413, "the request's body is too long");
        const bool nothing_read = failure == error::end_of_stream || failure == error::partial_message;
        if (nothing_read || failure.category() != error_code(error::bad_method).category()) {
            return shut();
        }
        refuse(400, "this is no HTTP/1.1 request: " + failure.message());
    }

    void refuse(unsigned status, std::string_view why) {
        last_ = true;
        head_only_ = false;
        allow(share_.options.request_time);
        send(error_response(status, why));
    }

    Request take_request() {
        auto& message = parser_->get();
        Request request;
        request.method = std::string_view(message.method_string());
        const std::string_view target = message.target();
        const std::size_t mark = std::min(target.find('?'), target.size());
        request.path = target.substr(0, mark);
        request.query = target.substr(std::min(mark + 1, target.size()));
        for (const auto& field : message) {
            request.fields.push_back(
                {std::string(std::string_view(field.name_string())), std::string(std::string_view(field.value()))});
        }
        request.body = std::move(message.body());
        request.peer = peer_.address;
        request.network = peer_.network;
        request.secure = kSecure;
        return request;
    }

    void answer() {
        const Request request = take_request();
        head_only_ = request.method == "HEAD";
        if (!parser_->get().keep_alive()) last_ = true;
        if (request.path.empty() || request.path.front() != '/') return refuse(400, "the target is not a path");
        // The handler's time is its own.
        timer_.cancel();
        Response response;
        try {
            response = share_.handler(request);
        } catch (const std::exception& error) {
            spdlog::error("{} {}: {}", request.method, printable(request.path, 200), error.what());
            response = error_response(500, "an error of the server's own");
        }
        send(std::move(response));
    }

    void send(Response response) {
        response_ = std::move(response);
        if (share_.stopping) last_ = true;
        const bool empty = response_.status == 304 || response_.status == 204;
        head_ = fmt::format("HTTP/1.1 {} {}\r\nDate: {}\r\nServer: kvasir\r\n", response_.status,
                            reason(response_.status), http_date());
        for (const Field& field : response_.fields) {
            if (fits_a_field(field.name) && fits_a_field(field.value)) {
                head_ += fmt::format("{}: {}\r\n", field.name, field.value);
            }
        }
        if (!empty) head_ += fmt::format("Content-Length: {}\r\n", response_.body_size());
        head_ += last_ ? "Connection: close\r\n\r\n" : "\r\n";
        left_ = empty || head_only_ ? 0 : response_.body_size();
        sent_ = 0;
        watch_progress();
        const bool by_kernel = !kSecure && left_ > 0 && std::holds_alternative<FilePart>(response_.body);
        if (by_kernel) gather(true);
        asio::async_write(stream_, asio::buffer(head_),
                          [self = this->shared_from_this(), by_kernel](error_code error, std::size_t) {
                              if (error) return self->shut();
                              by_kernel ? self->send_from_file() : self->send_more();
                          });
    }

    // The header waits for the first bytes of the file behind it, to travel in one packet with them.
    void gather(bool on) {
        const int value = on ? 1 : 0;
        ::setsockopt(socket().native_handle(), IPPROTO_TCP, TCP_CORK, &value, sizeof(value));
    }

    // Once in a stall's time enough must have been taken.
    void watch_progress() {
        taken_ = 0;
        timer_.expires_after(share_.options.stall_time);
        timer_.async_wait([weak = this->weak_from_this()](error_code error) {
            auto self = weak.lock();
            if (error || !self || self->timer_.expiry() > steady_clock::now()) return;
            self->taken_ < self->share_.options.stall_bytes ? self->shut() : self->watch_progress();
        });
    }

    void count(std::uint64_t bytes) {
        sent_ += bytes;
        taken_ += bytes;
        left_ -= bytes;
        share_.body_bytes += bytes;
    }

    // From memory, or through memory where the file's bytes are to be encrypted.
    void send_more() {
        if (left_ == 0) return answered();
        const std::size_t step = std::min<std::uint64_t>(left_, kWriteStep);
        ByteSpan bytes;
        if (const auto* part = std::get_if<FilePart>(&response_.body)) {
            chunk_.resize(step);
            // A file that has become shorter since: the length is promised, so only the end of the connection tells.
            if (!part->file->read_at(part->offset + sent_, chunk_)) return shut();
            bytes = chunk_;
        } else {
            const auto* text = std::get_if<std::string>(&response_.body);
            if (text == nullptr) text = std::get<std::shared_ptr<const std::string>>(response_.body).get();
            bytes = std::as_bytes(std::span(*text)).subspan(sent_, step);
        }
        asio::async_write(stream_, asio::buffer(bytes.data(), bytes.size()),
                          [self = this->shared_from_this()](error_code error, std::size_t written) {
                              if (error) return self->shut();
                              self->count(written);
                              self->send_more();
                          });
    }

    void send_from_file() {
        const auto& part = std::get<FilePart>(response_.body);
        std::uint64_t turn = 0;
        while (left_ > 0 && turn < kSendfileTurn) {
            auto position = static_cast<off_t>(part.offset + sent_);
            const std::size_t step = std::min<std::uint64_t>(left_, kSendfileTurn - turn);
            const ssize_t moved = ::sendfile(socket().native_handle(), part.file->descriptor(), &position, step);
            if (moved < 0 && errno == EINTR) continue;
            if (moved < 0 && errno == EAGAIN) return wait_to_send();
            if (moved <= 0) return shut();  // gone, or the file has become shorter
            turn += static_cast<std::uint64_t>(moved);
            share_.kernel_bytes += static_cast<std::uint64_t>(moved);
            count(static_cast<std::uint64_t>(moved));
        }
        if (left_ > 0) {
            return asio::post(stream_.get_executor(), [self = this->shared_from_this()] { self->send_from_file(); });
        }
        gather(false);
        answered();
    }

    void wait_to_send() {
        socket().async_wait(tcp::socket::wait_write, [self = this->shared_from_this()](error_code error) {
            error ? self->shut() : self->send_from_file();
        });
    }

    void answered() {
        ++share_.requests;
        response_ = {};
        answering_ = false;
        if (last_) return linger();
        allow(share_.options.idle_time);
        read_request();
    }

    // Closing at once would take back, on its way, an answer to a client that is still sending.
    void linger() {
        error_code ignored;
        socket().shutdown(tcp::socket::shutdown_send, ignored);
        allow(kLingerTime);
        chunk_.resize(16 << 10);
        discard(0);
    }

    void discard(std::size_t so_far) {
        if (so_far > kLingerBytes) return shut();
        socket().async_read_some(asio::buffer(chunk_),
                                 [self = this->shared_from_this(), so_far](error_code error, std::size_t count) {
                                     error ? self->shut() : self->discard(so_far + count);
                                 });
    }

    Stream stream_;
    asio::steady_timer timer_;
    const Peer peer_;
    SessionShare& share_;
    const std::function<void()> gone_;
    beast::flat_buffer buffer_;
    std::optional<Parser> parser_;
    bool answering_ = false;  // between a request's header and the end of its answer
    bool last_ = false;       // no request after this one
    bool head_only_ = false;
    Response response_;
    std::string head_;
    ByteVector chunk_;
    std::uint64_t sent_ = 0;  // of the body
    std::uint64_t left_ = 0;
    std::uint64_t taken_ = 0;  // since the last look at the clock
};

}  // namespace

std::shared_ptr<Session> make_session(tcp::socket socket, Peer peer, SessionShare& share, std::function<void()> gone) {
    if (share.tls) {
        return std::make_shared<StreamSession<asio::ssl::stream<tcp::socket>>>(std::move(peer), share, std::move(gone),
                                                                               std::move(socket), *share.tls);
    }
    return std::make_shared<StreamSession<tcp::socket>>(std::move(peer), share, std::move(gone), std::move(socket));
}

}  // namespace kvasir::http
