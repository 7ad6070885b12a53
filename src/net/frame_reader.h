// Puts frames together from a byte stream. Internal to net/.
#pragma once

#include <array>
#include <optional>
#include <span>

#include "wire/frame.h"

namespace kvasir {

// Memory grows with the bytes that came, not with what a header announces. Not thread-safe.
class FrameReader {
  public:
    // `checksums`: every payload must carry its checksum.
    explicit FrameReader(bool checksums) : checksums_(checksums) {}

    void set_limit(std::uint64_t limit) { limit_ = limit; }
    // Where the next bytes belong; never empty. Valid until advance().
    std::span<std::byte> space();
    // `count` bytes of space() are filled; the frame that they complete, if they do. After an error the stream is lost.
    Result<std::optional<Frame>> advance(std::size_t count);
    // Some bytes of a frame are there, and not all.
    bool in_frame() const { return header_filled_ > 0; }
    std::uint64_t announced() const { return kFrameHeaderBytes + header_.payload_length; }
    std::uint64_t filled() const { return header_filled_ + payload_filled_; }

  private:
    Status check_beginning() const;
    Status begin_payload();
    Result<std::optional<Frame>> complete();

    bool checksums_;
    std::uint64_t limit_ = kControlPayloadLimit;
    std::array<std::byte, kFrameHeaderBytes> header_bytes_{};
    std::size_t header_filled_ = 0;
    FrameHeader header_;
    ByteVector payload_;
    std::size_t payload_filled_ = 0;
};

}  // namespace kvasir
