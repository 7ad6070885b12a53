#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "net/channel.h"

namespace kvasir {
namespace {

// Small reads (frame headers) come out of a buffer, so that a header and a short payload cost one system call; reads
// as large as the buffer go straight to where they belong.
class PlainChannel final : public Channel {
  public:
    explicit PlainChannel(int socket) : socket_(socket) {}

    IoState handshake() override { return IoState::done; }

    IoResult read(std::span<std::byte> into) override {
        if (begin_ == end_ && into.size() >= buffer_.size()) return receive(into);
        if (begin_ == end_) {
            IoResult got = receive(buffer_);
            if (got.state != IoState::done) return got;
            begin_ = 0;
            end_ = got.bytes;
        }
        std::size_t count = std::min(into.size(), end_ - begin_);
        std::memcpy(into.data(), buffer_.data() + begin_, count);
        begin_ += count;
        return {IoState::done, count};
    }

    IoResult write(ByteSpan head, ByteSpan body) override {
        // sendmsg does not write through iov_base, which C declares without const.
        std::array<iovec, 2> parts = {iovec{const_cast<std::byte*>(head.data()), head.size()},
                                      iovec{const_cast<std::byte*>(body.data()), body.size()}};
        msghdr message{};
        message.msg_iov = parts.data();
        message.msg_iovlen = parts.size();
        return outcome(::sendmsg(socket_, &message, MSG_NOSIGNAL), IoState::want_write);
    }

    IoState flush() override { return IoState::done; }
    void finish() override {}
    std::optional<NodeId> peer() const override { return std::nullopt; }
    bool secure() const override { return false; }

  private:
    IoResult receive(std::span<std::byte> into) {
        ssize_t count = ::recv(socket_, into.data(), into.size(), 0);
        if (count == 0) {
            error_ = closed_by_peer();
            return {IoState::closed, 0};
        }
        return outcome(count, IoState::want_read);
    }

    IoResult outcome(ssize_t count, IoState want) {
        if (count >= 0) return {IoState::done, static_cast<std::size_t>(count)};
        if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return {want, 0};
        error_ = {ErrorKind::unavailable, fmt::format("the connection broke: {}", std::strerror(errno))};
        return {IoState::failed, 0};
    }

    int socket_;
    std::array<std::byte, 16 << 10> buffer_;
    std::size_t begin_ = 0;
    std::size_t end_ = 0;
};

}  // namespace

std::unique_ptr<Channel> make_plain_channel(int socket) {
    return std::make_unique<PlainChannel>(socket);
}

}  // namespace kvasir
