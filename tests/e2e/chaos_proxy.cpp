#include "e2e/chaos_proxy.h"

#include <array>
#include <boost/asio.hpp>
#include <chrono>

namespace kvasir::e2e {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
constexpr std::size_t kCutAfter = 30'000;
constexpr std::size_t kCorruptEvery = 5;

}  // namespace

struct ChaosProxy::State {
    asio::io_context context;
    tcp::acceptor acceptor{context, {asio::ip::address_v4::loopback(), 0}};
    std::uint16_t target = 0;
    std::atomic<Mischief> mischief{Mischief::none};
    std::atomic<int> deeds{0};
};

namespace {

// One direction of one proxied connection.
template <class State>
struct Pump : std::enable_shared_from_this<Pump<State>> {
    Pump(State* owner, std::shared_ptr<tcp::socket> source, std::shared_ptr<tcp::socket> sink, bool answers_direction)
        : state(owner),
          from(std::move(source)),
          to(std::move(sink)),
          answers(answers_direction),
          timer(state->context) {}

    void read() {
        auto self = this->shared_from_this();
        std::size_t most = state->mischief == Mischief::drip ? 1 : buffer.size();
        from->async_read_some(asio::buffer(buffer, most), [self](auto error, std::size_t count) {
            if (error) return self->end();
            self->pass(count);
        });
    }

    void pass(std::size_t count) {
        ++reads;
        bytes += count;
        switch (state->mischief.load()) {
            case Mischief::corrupt:
                if (answers && reads % kCorruptEvery == 0) {
                    buffer[count / 2] ^= 4;
                    ++state->deeds;
                }
                break;
            case Mischief::cut:
                if (bytes > kCutAfter) {
                    ++state->deeds;
                    return end();
                }
                break;
            case Mischief::stall:
                ++state->deeds;
                return read();
            case Mischief::drip:
                ++state->deeds;
                return later(count);
            case Mischief::none:
                break;
        }
        write(count);
    }

    void later(std::size_t count) {
        auto self = this->shared_from_this();
        timer.expires_after(std::chrono::microseconds(300));
        timer.async_wait([self, count](auto error) {
            if (!error) self->write(count);
        });
    }

    void write(std::size_t count) {
        auto self = this->shared_from_this();
        asio::async_write(*to, asio::buffer(buffer, count), [self](auto error, std::size_t) {
            if (error) return self->end();
            self->read();
        });
    }

    void end() {
        boost::system::error_code ignored;
        from->close(ignored);
        to->close(ignored);
    }

    State* state;
    std::shared_ptr<tcp::socket> from;
    std::shared_ptr<tcp::socket> to;
    bool answers;
    asio::steady_timer timer;
    std::array<unsigned char, 4096> buffer{};
    std::size_t reads = 0;
    std::size_t bytes = 0;
};

template <class State>
void accept(State* state) {
    auto client = std::make_shared<tcp::socket>(state->context);
    state->acceptor.async_accept(*client, [state, client](auto error) {
        if (error) return;
        auto server = std::make_shared<tcp::socket>(state->context);
        server->async_connect({asio::ip::address_v4::loopback(), state->target}, [=](auto refused) {
            if (refused) {
                client->close();
                return;
            }
            std::make_shared<Pump<State>>(state, client, server, false)->read();
            std::make_shared<Pump<State>>(state, server, client, true)->read();
        });
        accept(state);
    });
}

}  // namespace

ChaosProxy::ChaosProxy(std::uint16_t target_port) : state_(std::make_unique<State>()) {
    state_->target = target_port;
    accept(state_.get());
    thread_ = std::thread([state = state_.get()] { state->context.run(); });
}

ChaosProxy::~ChaosProxy() {
    state_->context.stop();
    thread_.join();
}

std::uint16_t ChaosProxy::port() const {
    return state_->acceptor.local_endpoint().port();
}
void ChaosProxy::set(Mischief mischief) {
    state_->mischief = mischief;
}
int ChaosProxy::deeds() const {
    return state_->deeds;
}

}  // namespace kvasir::e2e
