// Little-endian numbers and length-prefixed strings in byte buffers; every read is bounded.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kvasir {

using ByteSpan = std::span<const std::byte>;
using ByteVector = std::vector<std::byte>;

static_assert(std::endian::native == std::endian::little, "big-endian machines need byte swaps in bytes.h");

template <class T>
concept Number = std::integral<T> || std::floating_point<T>;

// Reads a buffer front to back. A read past the end returns zero or an empty value and sets `failed()` for good, so
// that a parser may check once after a group of reads. Does not own the bytes.
class ByteReader {
  public:
    explicit ByteReader(ByteSpan bytes) : bytes_(bytes) {}

    template <Number T>
    T read() {
        T value{};
        ByteSpan raw = take(sizeof(T));
        if (raw.size() == sizeof(T)) std::memcpy(&value, raw.data(), sizeof(T));
        return value;
    }

    // The next `count` bytes, or an empty span (and `failed()`) if there are fewer.
    ByteSpan take(std::uint64_t count) {
        if (failed_ || count > remaining()) {
            failed_ = true;
            return {};
        }
        ByteSpan taken = bytes_.subspan(position_, static_cast<std::size_t>(count));
        position_ += taken.size();
        return taken;
    }

    // A string with a length prefix of type `Length`; fails if longer than `limit`.
    template <std::unsigned_integral Length>
    std::string_view read_string(std::uint64_t limit) {
        std::uint64_t length = read<Length>();
        if (length > limit) failed_ = true;
        ByteSpan raw = take(length);
        return {reinterpret_cast<const char*>(raw.data()), raw.size()};
    }

    bool failed() const { return failed_; }
    // All bytes were read, none too many.
    bool finished() const { return !failed_ && remaining() == 0; }
    std::size_t position() const { return position_; }
    std::size_t remaining() const { return bytes_.size() - position_; }

  private:
    ByteSpan bytes_;
    std::size_t position_ = 0;
    bool failed_ = false;
};

// Appends to a buffer it owns.
class ByteWriter {
  public:
    template <Number T>
    void write(T value) {
        append(std::as_bytes(std::span(&value, 1)));
    }
    void append(ByteSpan bytes) { buffer_.insert(buffer_.end(), bytes.begin(), bytes.end()); }
    template <std::unsigned_integral Length>
    void write_string(std::string_view text) {
        write(static_cast<Length>(text.size()));
        append(std::as_bytes(std::span(text)));
    }
    std::size_t size() const { return buffer_.size(); }
    ByteVector& buffer() { return buffer_; }

  private:
    ByteVector buffer_;
};

}  // namespace kvasir
