#include "http/server.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <condition_variable>
#include <csignal>
#include <map>
#include <mutex>
#include <thread>

#include "http/session.h"

namespace kvasir::http {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

// Out of descriptors or memory: the next attempt comes after this pause instead of at once.
constexpr std::chrono::milliseconds kAcceptPause{100};
constexpr std::string_view kBusy =
    "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 10\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

tcp::endpoint plain(const tcp::endpoint& endpoint) {
    if (!endpoint.address().is_v6() || !endpoint.address().to_v6().is_v4_mapped()) return endpoint;
    return {asio::ip::make_address_v4(asio::ip::v4_mapped, endpoint.address().to_v6()), endpoint.port()};
}

Peer describe_peer(const tcp::endpoint& endpoint) {
    const tcp::endpoint remote = plain(endpoint);
    Peer peer{Address{remote.address().to_string(), remote.port()}.text(), remote.address().to_string()};
    if (remote.address().is_v6()) {
        const auto bytes = remote.address().to_v6().to_bytes();
        peer.network.assign(bytes.begin(), bytes.begin() + bytes.size() / 2);
    }
    return peer;
}

Status listen_at(tcp::acceptor& acceptor, const Address& address) {
    const bool everywhere = address.host.empty();
    error_code error;
    asio::ip::address ip = asio::ip::make_address(everywhere ? "::" : address.host, error);
    if (error && address.host == "localhost") ip = asio::ip::make_address("127.0.0.1", error);
    if (error) {
        return fail(ErrorKind::usage, "{}: listening needs an IP address of this machine, or none for all of them",
                    address.text());
    }
    const auto open = [&](const tcp::endpoint& endpoint) {
        acceptor.close(error);
        acceptor.open(endpoint.protocol(), error);
        if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
        if (!error && everywhere && endpoint.address().is_v6()) acceptor.set_option(asio::ip::v6_only(false), error);
        if (!error) acceptor.bind(endpoint, error);
        if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
    };
    open({ip, address.port});
    // A machine without IPv6.
    if (error == asio::error::address_family_not_supported && everywhere) open({tcp::v4(), address.port});
    if (!error) return {};
    const bool wrong = error == asio::error::access_denied || error.value() == EADDRNOTAVAIL;
    return fail(wrong ? ErrorKind::usage : ErrorKind::unavailable, "cannot listen on {}: {}", address.text(),
                error.message());
}

}  // namespace

class Server::Core {
  public:
    Core(const ServerOptions& options, Handler handler)
        : share_{.options = options, .handler = std::move(handler), .tls = nullptr},
          acceptor_(asio::make_strand(context_)),
          pause_(acceptor_.get_executor()),
          work_(context_.get_executor()) {}

    ~Core() { stop(std::chrono::milliseconds(0)); }

    Status start() {
        if (share_.options.tls) {
            Result<TlsContextPtr> tls = server_context(*share_.options.tls);
            if (!tls) return fail(tls.error());
            share_.tls = *tls;
        }
        if (Status listening = listen_at(acceptor_, share_.options.listen); !listening) return listening;
        error_code ignored;
        const tcp::endpoint local = plain(acceptor_.local_endpoint(ignored));
        local_ = {local.address().to_string(), local.port()};
        accept();
        for (int i = 0; i < std::max(share_.options.threads, 1); ++i)
            threads_.emplace_back([this] { run(); });
        return {};
    }

    const Address& local_address() const { return local_; }

    ServerStats stats() const {
        std::lock_guard lock(mutex_);
        return {accepted_, refused_, open_, share_.requests, share_.body_bytes, share_.kernel_bytes};
    }

    void stop(std::chrono::milliseconds grace) {
        if (threads_.empty()) return;
        share_.stopping = true;
        asio::post(acceptor_.get_executor(), [this] {
            error_code ignored;
            acceptor_.close(ignored);
            pause_.cancel();
        });
        for (const auto& session : sessions())
            session->finish();
        {
            std::unique_lock lock(mutex_);
            changed_.wait_for(lock, grace, [this] { return open_ == 0; });
        }
        for (const auto& session : sessions())
            session->close();
        {
            std::unique_lock lock(mutex_);
            changed_.wait(lock, [this] { return open_ == 0; });  // closing is all they have left to do
        }
        work_.reset();
        context_.stop();
        for (std::thread& thread : threads_)
            thread.join();
        threads_.clear();
    }

  private:
    void run() {
        // The kernel has no way to send from a file without raising SIGPIPE when the other end has gone.
        sigset_t pipe;
        sigemptyset(&pipe);
        sigaddset(&pipe, SIGPIPE);
        pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
        context_.run();
    }

    void accept() {
        acceptor_.async_accept(asio::make_strand(context_), [this](error_code error, tcp::socket socket) {
            if (error == asio::error::operation_aborted || share_.stopping) return;
            if (error) {
                spdlog::warn("cannot accept a connection: {}", error.message());
                pause_.expires_after(kAcceptPause);
                return pause_.async_wait([this](error_code stopped) {
                    if (!stopped) accept();
                });
            }
            welcome(std::move(socket));
            accept();
        });
    }

    void welcome(tcp::socket socket) {
        error_code error;
        const tcp::endpoint remote = socket.remote_endpoint(error);
        if (!error) socket.set_option(tcp::no_delay(true), error);
        if (!error) socket.native_non_blocking(true, error);
        if (error) return;  // it has gone already
        const std::shared_ptr<Session> session = admit(std::move(socket), describe_peer(remote));
        if (session) session->start();
    }

    std::shared_ptr<Session> admit(tcp::socket socket, const Peer& peer) {
        std::lock_guard lock(mutex_);
        if (share_.stopping) return nullptr;
        ++accepted_;
        std::uint32_t& from_there = per_network_[peer.network];
        if (open_ >= share_.options.connections || from_there >= share_.options.per_network) {
            ++refused_;
            if (from_there == 0) per_network_.erase(peer.network);
            if (!share_.tls) {
                const ssize_t ignored = ::send(socket.native_handle(), kBusy.data(), kBusy.size(), MSG_NOSIGNAL);
                static_cast<void>(ignored);
            }
            return nullptr;
        }
        ++open_;
        ++from_there;
        auto session = make_session(std::move(socket), peer, share_, [this, network = peer.network] { gone(network); });
        std::erase_if(sessions_, [](const std::weak_ptr<Session>& known) { return known.expired(); });
        sessions_.push_back(session);
        return session;
    }

    void gone(const std::string& network) {
        std::lock_guard lock(mutex_);
        --open_;
        if (--per_network_[network] == 0) per_network_.erase(network);
        changed_.notify_all();
    }

    std::vector<std::shared_ptr<Session>> sessions() {
        std::vector<std::shared_ptr<Session>> alive;
        std::lock_guard lock(mutex_);
        for (const std::weak_ptr<Session>& known : sessions_) {
            if (auto session = known.lock()) alive.push_back(std::move(session));
        }
        return alive;
    }

    SessionShare share_;
    asio::io_context context_;
    tcp::acceptor acceptor_;  // on a strand of its own, as is the pause
    asio::steady_timer pause_;
    Address local_;
    asio::executor_work_guard<asio::io_context::executor_type> work_;
    std::vector<std::thread> threads_;

    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<std::weak_ptr<Session>> sessions_;
    std::map<std::string, std::uint32_t> per_network_;
    std::uint64_t accepted_ = 0;
    std::uint64_t refused_ = 0;
    std::uint64_t open_ = 0;
};

Server::Server(std::unique_ptr<Core> core) : core_(std::move(core)) {}
Server::~Server() = default;

Result<std::unique_ptr<Server>> Server::start(const ServerOptions& options, Handler handler) {
    auto core = std::make_unique<Core>(options, std::move(handler));
    if (Status started = core->start(); !started) return fail(started.error());
    return std::unique_ptr<Server>(new Server(std::move(core)));
}

Address Server::local_address() const {
    return core_->local_address();
}
ServerStats Server::stats() const {
    return core_->stats();
}
void Server::stop(std::chrono::milliseconds grace) {
    core_->stop(grace);
}

}  // namespace kvasir::http
