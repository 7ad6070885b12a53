// Two ends of a connection in one process, with what they receive collected.
#pragma once

#include <gtest/gtest.h>

#include <boost/asio/executor_work_guard.hpp>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <future>
#include <mutex>
#include <thread>
#include <vector>

#include "net/connection.h"

namespace kvasir::test {

// The longest an expected thing may take on a loaded machine.
inline constexpr std::chrono::seconds kPatience{60};

// An io_context with threads of its own; stops and joins them when it goes.
class IoThreads {
  public:
    explicit IoThreads(int threads = 2) : work_(context_.get_executor()) {
        for (int i = 0; i < threads; ++i)
            threads_.emplace_back([this] { context_.run(); });
    }
    ~IoThreads() { stop(); }
    void stop() {
        context_.stop();
        for (std::thread& thread : threads_)
            thread.join();
        threads_.clear();
    }
    boost::asio::io_context& context() { return context_; }

  private:
    boost::asio::io_context context_;
    boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
    std::vector<std::thread> threads_;
};

// What one end received.
class Inbox {
  public:
    void add(Frame&& frame) {
        std::lock_guard lock(mutex_);
        frames_.push_back(std::move(frame));
        changed_.notify_all();
    }
    void closed(const Error& error) {
        std::lock_guard lock(mutex_);
        closed_ = error;
        ++closes_;
        changed_.notify_all();
    }
    std::optional<Frame> next() {
        std::unique_lock lock(mutex_);
        changed_.wait_for(lock, kPatience, [&] { return !frames_.empty() || closed_; });
        if (frames_.empty()) return std::nullopt;
        Frame frame = std::move(frames_.front());
        frames_.pop_front();
        return frame;
    }
    // The reason of the close; fails the test if it doesn't come.
    Error wait_closed() {
        std::unique_lock lock(mutex_);
        bool in_time = changed_.wait_for(lock, kPatience, [&] { return closed_.has_value(); });
        EXPECT_TRUE(in_time) << "the connection was not closed";
        return closed_.value_or(Error{ErrorKind::internal, "not closed"});
    }
    int closes() const {
        std::lock_guard lock(mutex_);
        return closes_;
    }

  private:
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Frame> frames_;
    std::optional<Error> closed_;
    int closes_ = 0;
};

// A connection and its inbox.
struct End {
    ConnectionPtr connection;
    std::shared_ptr<Inbox> inbox = std::make_shared<Inbox>();

    explicit End(ConnectionPtr c) : connection(std::move(c)) {
        if (connection == nullptr) return;
        connection->start([inbox = inbox](Frame&& frame) { inbox->add(std::move(frame)); },
                          [inbox = inbox](const Error& error) { inbox->closed(error); });
    }
};

// Connections as a listener hands them over.
class Accepted {
  public:
    void add(ConnectionPtr connection) {
        std::lock_guard lock(mutex_);
        connections_.push_back(std::move(connection));
        changed_.notify_all();
    }
    // The next one, or null when none comes.
    ConnectionPtr next() {
        std::unique_lock lock(mutex_);
        if (!changed_.wait_for(lock, kPatience, [&] { return !connections_.empty(); })) return nullptr;
        ConnectionPtr connection = std::move(connections_.front());
        connections_.pop_front();
        return connection;
    }

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<ConnectionPtr> connections_;
};

inline std::shared_ptr<const Identity> new_identity() {
    Result<Identity> identity = Identity::generate();
    EXPECT_TRUE(identity.has_value());
    return std::make_shared<const Identity>(std::move(*identity));
}

// A listener on a free loopback port that admits everybody, unless told otherwise.
struct Server {
    std::shared_ptr<Accepted> accepted = std::make_shared<Accepted>();
    std::unique_ptr<Listener> listener;

    Server(
        IoThreads& io, std::shared_ptr<const Identity> identity, const ConnectionOptions& options = {},
        Listener::Admission admit = [](const NodeId&) { return true; }) {
        auto made = Listener::create(
            io.context(), {"127.0.0.1", 0}, std::move(identity), std::move(admit),
            [accepted = accepted](ConnectionPtr c) { accepted->add(std::move(c)); }, options);
        EXPECT_TRUE(made.has_value()) << (made ? "" : made.error().message);
        if (made) listener = std::move(*made);
    }
    Address address() const { return listener->local_address(); }
};

inline Result<ConnectionPtr> connect_now(IoThreads& io, const Address& address,
                                         std::shared_ptr<const Identity> identity, std::optional<NodeId> expected,
                                         std::chrono::milliseconds timeout = std::chrono::seconds(30),
                                         const ConnectionOptions& options = {}) {
    auto promise = std::make_shared<std::promise<Result<ConnectionPtr>>>();
    auto future = promise->get_future();
    connect(
        io.context(), address, std::move(identity), expected, timeout,
        [promise](Result<ConnectionPtr> result) { promise->set_value(std::move(result)); }, options);
    if (future.wait_for(kPatience) != std::future_status::ready) return fail(ErrorKind::internal, "connect() hangs");
    return future.get();
}

// Bytes that differ along the frame, so that misplaced ones are noticed.
inline ByteVector pattern(std::size_t size, std::uint32_t seed = 1) {
    ByteVector bytes(size);
    std::uint32_t state = seed * 2654435761U + 1;
    for (std::byte& byte : bytes) {
        state = state * 1664525U + 1013904223U;
        byte = static_cast<std::byte>(state >> 24);
    }
    return bytes;
}

}  // namespace kvasir::test
