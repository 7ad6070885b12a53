// A blocking TCP socket that speaks whatever a test wants, for what no well-behaved peer would send.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <string_view>
#include <utility>

#include "base/bytes.h"

namespace kvasir::test {

class RawSocket {
  public:
    // From 127.0.0.`from`.
    static RawSocket connected(std::uint16_t port, std::uint8_t from = 1) {
        RawSocket made(::socket(AF_INET, SOCK_STREAM, 0));
        sockaddr_in source = loopback(0);
        source.sin_addr.s_addr = htonl(INADDR_LOOPBACK - 1 + from);
        EXPECT_EQ(::bind(made.descriptor_, reinterpret_cast<sockaddr*>(&source), sizeof(source)), 0);
        sockaddr_in address = loopback(port);
        EXPECT_EQ(::connect(made.descriptor_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
        return made;
    }
    // Listens and lets the kernel accept; never answers a byte.
    static RawSocket silent_listener() {
        RawSocket made(::socket(AF_INET, SOCK_STREAM, 0));
        sockaddr_in address = loopback(0);
        EXPECT_EQ(::bind(made.descriptor_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
        EXPECT_EQ(::listen(made.descriptor_, 16), 0);
        return made;
    }
    ~RawSocket() { close(); }
    RawSocket(RawSocket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
    RawSocket& operator=(RawSocket&&) = delete;

    int descriptor() const { return descriptor_; }
    std::uint16_t port() const {
        sockaddr_in address{};
        socklen_t size = sizeof(address);
        EXPECT_EQ(::getsockname(descriptor_, reinterpret_cast<sockaddr*>(&address), &size), 0);
        return ntohs(address.sin_port);
    }
    void send(ByteSpan bytes) {
        while (!bytes.empty()) {
            ssize_t count = ::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
            if (count <= 0) return;  // the other end may have had enough
            bytes = bytes.subspan(static_cast<std::size_t>(count));
        }
    }
    void send(std::string_view text) { send(std::as_bytes(std::span(text))); }
    // Everything up to the end of the connection; fails the test if that takes longer than a minute.
    ByteVector receive_all() {
        ByteVector all;
        std::array<std::byte, 4096> buffer;
        for (;;) {
            ssize_t count = ::recv(descriptor_, buffer.data(), buffer.size(), 0);
            EXPECT_FALSE(count < 0 && errno == EAGAIN) << "the other end did not close";
            if (count <= 0) return all;
            all.insert(all.end(), buffer.begin(), buffer.begin() + count);
        }
    }
    void close() {
        if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
    }
    // Closes with a reset instead of a farewell.
    void reset() {
        linger hard{1, 0};
        ::setsockopt(descriptor_, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
        close();
    }

  private:
    explicit RawSocket(int descriptor) : descriptor_(descriptor) {
        timeval patience{60, 0};
        ::setsockopt(descriptor_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    }
    static sockaddr_in loopback(std::uint16_t port) {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_port = htons(port);
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        return address;
    }

    int descriptor_;
};

}  // namespace kvasir::test
