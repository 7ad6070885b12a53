#include <algorithm>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <utility>
#include <vector>

#include "net/tcp.h"
#include "net/tls.h"

namespace kvasir {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using std::chrono::steady_clock;

// What TLS needs; without it the connection is plain.
struct Security {
    TlsContext tls;
    NodeId expected;
};

using Handler = std::function<void(Result<ConnectionPtr>)>;

// One connect(): resolve, then one address after the other, each with an equal share of the time that is left.
class Connector : public std::enable_shared_from_this<Connector> {
  public:
    Connector(asio::io_context& context, Address address, std::optional<Security> security, Deadline deadline,
              Handler handler, const ConnectionOptions& options)
        : address_(std::move(address)),
          security_(std::move(security)),
          deadline_(deadline),
          handler_(std::move(handler)),
          options_(options),
          context_(context),
          strand_(asio::make_strand(context)),
          resolver_(context),
          socket_(context),
          timer_(strand_) {}

    void start() {
        asio::post(strand_, [self = shared_from_this()] { self->resolve(); });
    }

  private:
    void resolve() {
        error_code not_literal;
        Tcp::endpoint literal = literal_endpoint(address_, not_literal);
        if (!not_literal) {
            endpoints_.push_back(literal);
            return attempt();
        }
        timer_.expires_at(deadline_);
        timer_.async_wait([self = shared_from_this()](error_code error) {
            if (!error)
                self->finish(fail(ErrorKind::unavailable, "looking up '{}' took too long", self->address_.host));
        });
        auto resolved = [self = shared_from_this()](error_code error, const Tcp::resolver::results_type& results) {
            self->timer_.cancel();
            if (error) {
                return self->finish(
                    fail(ErrorKind::unavailable, "cannot look up '{}': {}", self->address_.host, error.message()));
            }
            for (const auto& result : results)
                self->endpoints_.push_back(result.endpoint());
            self->attempt();
        };
        resolver_.async_resolve(address_.host, std::to_string(address_.port), Tcp::resolver::numeric_service,
                                asio::bind_executor(strand_, std::move(resolved)));
    }

    void attempt() {
        if (!handler_) return;
        if (tried_ == endpoints_.size()) return finish(failure());
        Tcp::endpoint endpoint = endpoints_[tried_++];
        if (!security_ && !is_loopback(endpoint)) {
            return finish(fail(ErrorKind::usage,
                               "{}: without TLS only loopback addresses are allowed; name the node's id",
                               endpoint_text(endpoint)));
        }
        auto now = steady_clock::now();
        attempt_deadline_ = now + (deadline_ - now) / static_cast<int>(endpoints_.size() - tried_ + 1);
        socket_ = Tcp::socket(context_);
        timer_.expires_at(attempt_deadline_);
        timer_.async_wait([self = shared_from_this(), attempt = tried_](error_code error) {
            error_code ignored;
            if (!error && attempt == self->tried_) self->socket_.close(ignored);
        });
        socket_.async_connect(endpoint, asio::bind_executor(strand_, [self = shared_from_this()](error_code error) {
                                  self->connected(error);
                              }));
    }

    void connected(error_code error) {
        timer_.cancel();
        if (!error && socket_.is_open()) error = prepare_socket(socket_);
        if (error == asio::error::operation_aborted || !socket_.is_open()) {
            return try_next({ErrorKind::unavailable, "no answer in time"});
        }
        if (error) return try_next({ErrorKind::unavailable, error.message()});
        Result<std::unique_ptr<Channel>> channel = make_channel();
        if (!channel) return finish(fail(channel.error()));
        Handshake::start({std::move(socket_), std::move(*channel)}, attempt_deadline_,
                         [self = shared_from_this()](Result<Established> result) {
                             asio::post(self->strand_, [self, result = std::move(result)]() mutable {
                                 self->shaken(std::move(result));
                             });
                         });
    }

    Result<std::unique_ptr<Channel>> make_channel() {
        int descriptor = socket_.native_handle();
        if (!security_) return make_plain_channel(descriptor);
        return security_->tls.connecting(descriptor, security_->expected);
    }

    void shaken(Result<Established> result) {
        if (!result) return try_next(result.error());
        finish(make_connection(std::move(*result), options_));
    }

    void try_next(const Error& error) {
        failures_.push_back(error.within(endpoint_text(endpoints_[tried_ - 1])));
        attempt();
    }

    // All addresses failed. A definite answer (another id, no TLS) tells more than silence elsewhere.
    tl::unexpected<Error> failure() const {
        std::string text;
        ErrorKind kind = ErrorKind::unavailable;
        for (const Error& error : failures_) {
            if (!text.empty()) text += "; ";
            text += error.message;
            if (kind == ErrorKind::unavailable) kind = error.kind;
        }
        return fail(kind, "cannot connect to {}", text.empty() ? address_.text() : text);
    }

    void finish(Result<ConnectionPtr> result) {
        timer_.cancel();
        if (handler_) std::exchange(handler_, nullptr)(std::move(result));
    }

    const Address address_;
    const std::optional<Security> security_;
    const Deadline deadline_;
    Handler handler_;
    const ConnectionOptions options_;
    asio::io_context& context_;
    asio::strand<asio::io_context::executor_type> strand_;
    Tcp::resolver resolver_;
    Tcp::socket socket_;
    asio::steady_timer timer_;
    std::vector<Tcp::endpoint> endpoints_;
    std::size_t tried_ = 0;
    Deadline attempt_deadline_;
    std::vector<Error> failures_;
};

Result<std::optional<Security>> make_security(const Identity* identity, const std::optional<NodeId>& expected) {
    if (identity == nullptr) return std::nullopt;
    if (!expected) return fail(ErrorKind::usage, "a TLS connection needs the id of the node to connect to");
    Result<TlsContext> tls = TlsContext::create(*identity);
    if (!tls) return fail(tls.error());
    return Security{std::move(*tls), *expected};
}

}  // namespace

void connect(asio::io_context& context, const Address& address, const std::shared_ptr<const Identity>& identity,
             const std::optional<NodeId>& expected, std::chrono::milliseconds timeout, Handler handler,
             const ConnectionOptions& options) {
    Result<std::optional<Security>> security = make_security(identity.get(), expected);
    if (security && (address.host.empty() || address.port == 0)) {
        security = fail(ErrorKind::usage, "'{}' is not an address to connect to: HOST:PORT", address.text());
    }
    if (!security) {
        asio::post(context, [handler = std::move(handler), error = security.error()] { handler(fail(error)); });
        return;
    }
    std::make_shared<Connector>(context, address, std::move(*security), steady_clock::now() + timeout,
                                std::move(handler), options)
        ->start();
}

}  // namespace kvasir
