// A connection whose other end is the test.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "net/connection.h"
#include "worker/worker_fixture.h"

namespace kvasir::worker_test {

class FakeConnection final : public Connection {
  public:
    void start(FrameHandler on_frame, CloseHandler on_close) override {
        on_frame_ = std::move(on_frame);
        on_close_ = std::move(on_close);
    }
    bool send(Frame frame) override {
        std::scoped_lock lock(mutex_);
        sent_.push_back(std::move(frame));
        changed_.notify_all();
        return true;
    }
    void close(Error reason) override {
        std::scoped_lock lock(mutex_);
        closed_ = std::move(reason);
    }
    void set_payload_limit(std::uint64_t limit) override { payload_limit = limit; }
    std::optional<NodeId> peer() const override { return peer_id; }
    std::string peer_address() const override { return "127.0.0.1:9"; }
    std::uint64_t bytes_sent() const override { return 0; }
    std::uint64_t bytes_received() const override { return received; }

    void deliver(FrameType type, std::uint64_t request, ByteVector payload = {}) {
        received += kFrameHeaderBytes + payload.size();
        on_frame_({type, request, std::move(payload)});
    }
    // Ends it, which releases the handlers and with them the session; does nothing the second time.
    void lose() {
        on_frame_ = nullptr;
        if (CloseHandler on_close = std::exchange(on_close_, nullptr)) on_close({ErrorKind::unavailable, "lost"});
    }
    Frame next() {
        std::unique_lock lock(mutex_);
        if (!changed_.wait_for(lock, kLongWait, [this] { return !sent_.empty(); })) {
            ADD_FAILURE() << "no frame was sent";
            return {};
        }
        Frame frame = std::move(sent_.front());
        sent_.pop_front();
        return frame;
    }
    bool quiet() {
        std::scoped_lock lock(mutex_);
        return sent_.empty();
    }
    std::optional<Error> closed() {
        std::scoped_lock lock(mutex_);
        return closed_;
    }

    std::uint64_t payload_limit = 0;
    std::uint64_t received = 0;
    std::optional<NodeId> peer_id;  // with TLS; set before the session is made

  private:
    FrameHandler on_frame_;
    CloseHandler on_close_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Frame> sent_;
    std::optional<Error> closed_;
};

}  // namespace kvasir::worker_test
