#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/steady_timer.hpp>
#include <mutex>
#include <utility>
#include <vector>

#include "net/tcp.h"
#include "net/tls.h"

namespace kvasir {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using std::chrono::steady_clock;

// Out of descriptors or memory: the next attempt comes after this pause instead of at once.
constexpr std::chrono::milliseconds kAcceptPause{100};
// Strangers must not be able to fill the log: so often at most they are written about.
constexpr std::chrono::seconds kComplaintPause{1};

// What one peer can be expected to have for itself alone: an IPv4 address, or the upper half of an IPv6 one.
std::string network_of(const Tcp::endpoint& endpoint) {
    const auto address = plain_endpoint(endpoint).address();
    if (!address.is_v6()) return address.to_string();
    const auto bytes = address.to_v6().to_bytes();
    return {bytes.begin(), bytes.begin() + bytes.size() / 2};
}

struct Handlers {
    Listener::Admission admit;
    Listener::AcceptHandler on_connection;
};

// What pending operations keep alive after the Listener has gone.
class Acceptor : public std::enable_shared_from_this<Acceptor> {
  public:
    Acceptor(asio::io_context& context, Tcp::acceptor acceptor, std::optional<TlsContext> tls, Handlers handlers,
             const ConnectionOptions& options)
        : context_(context),
          tls_(std::move(tls)),
          options_(options),
          acceptor_(std::move(acceptor)),
          pause_(context),
          handlers_(std::make_shared<const Handlers>(std::move(handlers))) {}

    void start() {
        std::lock_guard lock(mutex_);
        accept();
    }

    void stop() {
        std::vector<Unfinished> handshakes;
        std::shared_ptr<const Handlers> released;  // destroyed without the lock: it may own anything
        {
            std::lock_guard lock(mutex_);
            error_code ignored;
            acceptor_.close(ignored);
            pause_.cancel();
            handshakes.swap(handshakes_);
            released.swap(handlers_);
        }
        for (const Unfinished& unfinished : handshakes) {
            if (auto handshake = unfinished.handshake.lock()) handshake->cancel();
        }
    }

  private:
    struct Unfinished {
        std::weak_ptr<Handshake> handshake;
        std::string network;  // network_of() the peer
    };

    void accept() {
        acceptor_.async_accept(context_, [self = shared_from_this()](error_code error, Tcp::socket socket) {
            self->accepted(error, std::move(socket));
        });
    }

    void accepted(error_code error, Tcp::socket socket) {
        std::shared_ptr<const Handlers> handlers;
        {
            std::lock_guard lock(mutex_);
            if (!acceptor_.is_open()) return;
            if (error) return accept_later(error);
            accept();
            handlers = handlers_;
        }
        begin_handshake(std::move(socket), handlers);
    }

    void accept_later(error_code error) {
        spdlog::warn("cannot accept a connection: {}", error.message());
        pause_.expires_after(kAcceptPause);
        pause_.async_wait([self = shared_from_this()](error_code stopped) {
            std::lock_guard lock(self->mutex_);
            if (!stopped && self->acceptor_.is_open()) self->accept();
        });
    }

    void begin_handshake(Tcp::socket socket, const std::shared_ptr<const Handlers>& handlers) {
        error_code error;
        const Tcp::endpoint remote = socket.remote_endpoint(error);
        std::string peer = endpoint_text(remote);
        if (!error) error = prepare_socket(socket);
        if (error) return;  // it has gone already
        Result<std::unique_ptr<Channel>> channel = make_channel(socket.native_handle(), handlers);
        if (!channel) return spdlog::error("{}: {}", peer, channel.error().message);

        std::lock_guard lock(mutex_);
        if (!acceptor_.is_open()) return;
        std::erase_if(handshakes_, [](const Unfinished& unfinished) { return unfinished.handshake.expired(); });
        if (handshakes_.size() >= kMaximumHandshakes) {
            return complain(peer, "too many unfinished handshakes");
        }
        std::string network = network_of(remote);
        const auto from_there = std::ranges::count(handshakes_, network, &Unfinished::network);
        if (static_cast<std::size_t>(from_there) >= kMaximumHandshakesPerPeer) {
            return complain(peer, "too many unfinished handshakes from there");
        }
        auto handshake =
            Handshake::start({std::move(socket), std::move(*channel)}, steady_clock::now() + options_.handshake,
                             [weak = weak_from_this(), peer](Result<Established> result) {
                                 if (auto self = weak.lock()) self->shaken(peer, std::move(result));
                             });
        handshakes_.push_back({handshake, std::move(network)});
    }

    Result<std::unique_ptr<Channel>> make_channel(int socket, const std::shared_ptr<const Handlers>& handlers) const {
        if (!tls_) return make_plain_channel(socket);
        return tls_->accepting(
            socket, [handlers](const NodeId& id) { return handlers && handlers->admit && handlers->admit(id); });
    }

    void shaken(const std::string& peer, Result<Established> result) {
        std::shared_ptr<const Handlers> handlers;
        {
            std::lock_guard lock(mutex_);
            handlers = handlers_;
        }
        if (!handlers) return;  // stopped
        if (!result) return complain(peer, result.error().message);
        handlers->on_connection(make_connection(std::move(*result), options_));
    }

    void complain(const std::string& peer, std::string_view why) {
        auto now = steady_clock::now().time_since_epoch().count();
        auto next = next_complaint_.load();
        if (now < next ||
            !next_complaint_.compare_exchange_strong(next, now + steady_clock::duration(kComplaintPause).count())) {
            ++unsaid_;
            return;
        }
        std::uint64_t unsaid = unsaid_.exchange(0);
        spdlog::warn("{}: connection refused: {}{}", peer, why,
                     unsaid == 0 ? "" : fmt::format(" (and {} others before)", unsaid));
    }

    asio::io_context& context_;
    const std::optional<TlsContext> tls_;
    const ConnectionOptions options_;
    std::atomic<steady_clock::rep> next_complaint_{steady_clock::duration::min().count()};
    std::atomic<std::uint64_t> unsaid_{0};
    std::mutex mutex_;  // guards all below; not held while a handler runs
    Tcp::acceptor acceptor_;
    asio::steady_timer pause_;
    std::shared_ptr<const Handlers> handlers_;  // null once stopped
    std::vector<Unfinished> handshakes_;
};

class TcpListener final : public Listener {
  public:
    TcpListener(std::shared_ptr<Acceptor> acceptor, Address address)
        : acceptor_(std::move(acceptor)), address_(std::move(address)) {}
    // Only memory that has run out or a broken mutex could throw here.
    ~TcpListener() override {  // NOLINT(bugprone-exception-escape)
        acceptor_->stop();
    }

    Address local_address() const override { return address_; }
    void stop() override { acceptor_->stop(); }

  private:
    std::shared_ptr<Acceptor> acceptor_;
    Address address_;
};

Result<Tcp::endpoint> resolve(asio::io_context& context, const Address& address) {
    if (address.host.empty()) return Tcp::endpoint(Tcp::v6(), address.port);
    error_code error;
    Tcp::endpoint literal = literal_endpoint(address, error);
    if (!error) return literal;
    Tcp::resolver resolver(context);
    auto results = resolver.resolve(address.host, std::to_string(address.port),
                                    Tcp::resolver::numeric_service | Tcp::resolver::passive, error);
    if (error || results.empty()) {
        return fail(ErrorKind::usage, "cannot look up '{}': {}", address.host, error.message());
    }
    // A name like localhost stands for two addresses; the older one is what people mean.
    auto v4 = std::find_if(results.begin(), results.end(),
                           [](const auto& result) { return result.endpoint().address().is_v4(); });
    return (v4 != results.end() ? *v4 : *results.begin()).endpoint();
}

error_code bind(Tcp::acceptor& acceptor, const Tcp::endpoint& endpoint) {
    error_code error;
    acceptor.open(endpoint.protocol(), error);
    if (!error) acceptor.set_option(Tcp::acceptor::reuse_address(true), error);
    if (!error && endpoint.protocol() == Tcp::v6() && endpoint.address().is_unspecified()) {
        acceptor.set_option(asio::ip::v6_only(false), error);
    }
    if (!error) acceptor.bind(endpoint, error);
    if (!error) acceptor.listen(Tcp::acceptor::max_listen_connections, error);
    return error;
}

Status open(Tcp::acceptor& acceptor, Tcp::endpoint endpoint, bool all_interfaces) {
    error_code error = bind(acceptor, endpoint);
    if (error == asio::error::address_family_not_supported && all_interfaces) {
        endpoint = Tcp::endpoint(Tcp::v4(), endpoint.port());  // a machine without IPv6
        error_code ignored;
        acceptor.close(ignored);
        error = bind(acceptor, endpoint);
    }
    if (!error) return {};
    std::string text = endpoint_text(endpoint);
    if (error == asio::error::address_in_use) {
        return fail(ErrorKind::unavailable, "{}: port {} is taken by another program; stop it or choose another port",
                    text, endpoint.port());
    }
    if (error == boost::system::errc::address_not_available) {
        return fail(ErrorKind::usage, "{}: this machine has no such address", text);
    }
    return fail(ErrorKind::io, "{}: cannot listen: {}", text, error.message());
}

}  // namespace

Result<std::unique_ptr<Listener>> Listener::create(asio::io_context& context, const Address& address,
                                                   const std::shared_ptr<const Identity>& identity, Admission admit,
                                                   AcceptHandler on_connection, const ConnectionOptions& options) {
    Result<Tcp::endpoint> endpoint = resolve(context, address);
    if (!endpoint) return fail(endpoint.error());
    if (!identity && !is_loopback(*endpoint)) {
        return fail(ErrorKind::usage, "{}: without TLS only loopback addresses are allowed", address.text());
    }
    std::optional<TlsContext> tls;
    if (identity) {
        Result<TlsContext> made = TlsContext::create(*identity);
        if (!made) return fail(made.error());
        tls = std::move(*made);
    }
    Tcp::acceptor acceptor(context);
    if (Status ok = open(acceptor, *endpoint, address.host.empty()); !ok) return fail(ok.error());
    error_code error;
    Tcp::endpoint bound = plain_endpoint(acceptor.local_endpoint(error));
    if (error) return fail(ErrorKind::io, "cannot read the port bound: {}", error.message());

    auto core = std::make_shared<Acceptor>(context, std::move(acceptor), std::move(tls),
                                           Handlers{std::move(admit), std::move(on_connection)}, options);
    core->start();
    return std::make_unique<TcpListener>(std::move(core), Address{bound.address().to_string(), bound.port()});
}

}  // namespace kvasir
