#include "net/tcp.h"

#include <boost/asio/bind_executor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <utility>

namespace kvasir {
namespace {

namespace asio = boost::asio;

class SocketHandshake final : public Handshake, public std::enable_shared_from_this<SocketHandshake> {
  public:
    SocketHandshake(Established unfinished, Done done)
        : parts_(std::move(unfinished)),
          strand_(asio::make_strand(parts_.socket.get_executor())),
          timer_(strand_),
          done_(std::move(done)) {}

    void start(Deadline deadline) {
        asio::post(strand_, [self = shared_from_this(), deadline] {
            self->timer_.expires_at(deadline);
            self->timer_.async_wait([weak = self->weak_from_this()](boost::system::error_code error) {
                if (error) return;
                if (auto alive = weak.lock()) alive->give_up("the TLS handshake took too long");
            });
            self->step();
        });
    }

    void cancel() override {
        asio::post(strand_, [self = shared_from_this()] { self->give_up("stopped in the TLS handshake"); });
    }

  private:
    void step() {
        if (!done_) return;
        switch (parts_.channel->handshake()) {
            case IoState::done:
                return finish(std::move(parts_));
            case IoState::want_read:
                return wait(Tcp::socket::wait_read);
            case IoState::want_write:
                return wait(Tcp::socket::wait_write);
            case IoState::closed:
            case IoState::failed:
                return finish(fail(parts_.channel->error()));
        }
    }

    void wait(Tcp::socket::wait_type what) {
        parts_.socket.async_wait(
            what, asio::bind_executor(strand_, [self = shared_from_this()](
                                                   boost::system::error_code /*checked by step*/) { self->step(); }));
    }

    void give_up(const char* why) {
        if (done_) finish(fail(ErrorKind::unavailable, "{}", why));
    }

    void finish(Result<Established> result) {
        timer_.cancel();
        boost::system::error_code ignored;
        if (!result) parts_.socket.close(ignored);
        std::exchange(done_, nullptr)(std::move(result));
    }

    Established parts_;
    asio::strand<Tcp::socket::executor_type> strand_;
    asio::steady_timer timer_;
    Done done_;
};

}  // namespace

std::shared_ptr<Handshake> Handshake::start(Established unfinished, Deadline deadline, Done done) {
    auto handshake = std::make_shared<SocketHandshake>(std::move(unfinished), std::move(done));
    handshake->start(deadline);
    return handshake;
}

boost::system::error_code prepare_socket(Tcp::socket& socket) {
    boost::system::error_code error;
    socket.native_non_blocking(true, error);
    if (!error) socket.set_option(Tcp::no_delay(true), error);
    return error;
}

Tcp::endpoint plain_endpoint(const Tcp::endpoint& endpoint) {
    asio::ip::address address = endpoint.address();
    if (!address.is_v6() || !address.to_v6().is_v4_mapped()) return endpoint;
    return {asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6()), endpoint.port()};
}

bool is_loopback(const Tcp::endpoint& endpoint) {
    return plain_endpoint(endpoint).address().is_loopback();
}

std::string endpoint_text(const Tcp::endpoint& endpoint) {
    Tcp::endpoint plain = plain_endpoint(endpoint);
    return Address{plain.address().to_string(), plain.port()}.text();
}

Tcp::endpoint literal_endpoint(const Address& address, boost::system::error_code& error) {
    return {asio::ip::make_address(address.host, error), address.port};
}

}  // namespace kvasir
