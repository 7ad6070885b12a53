#include "net/frame_reader.h"

#include <algorithm>

namespace kvasir {
namespace {

// The memory that a peer gets by announcing bytes; beyond, it must send as much before it gets as much again.
constexpr std::size_t kFirstReservation = 1 << 20;
// Address space, not memory: up to here a payload grows without being copied.
constexpr std::uint64_t kReservedAddresses = 64 << 20;

// TLS's alert and handshake records are the likeliest bytes that are no frame of ours.
bool looks_like_tls(ByteSpan bytes) {
    return bytes.size() >= 2 && (bytes[0] == std::byte{0x15} || bytes[0] == std::byte{0x16}) &&
           bytes[1] == std::byte{0x03};
}

}  // namespace

std::span<std::byte> FrameReader::space() {
    if (header_filled_ < kFrameHeaderBytes) return std::span(header_bytes_).subspan(header_filled_);
    if (payload_filled_ == payload_.size()) {
        std::size_t next = std::max(kFirstReservation, 2 * payload_.size());
        payload_.resize(std::min<std::uint64_t>(header_.payload_length, next));
    }
    return std::span(payload_).subspan(payload_filled_);
}

Result<std::optional<Frame>> FrameReader::advance(std::size_t count) {
    if (header_filled_ < kFrameHeaderBytes) {
        header_filled_ += count;
        if (Status ok = check_beginning(); !ok) return fail(ok.error());
        if (header_filled_ < kFrameHeaderBytes) return std::nullopt;
        if (Status ok = begin_payload(); !ok) return fail(ok.error());
    } else {
        payload_filled_ += count;
    }
    if (payload_filled_ < header_.payload_length) return std::nullopt;
    return complete();
}

// Refuses what cannot become a frame without waiting for a whole header: a TLS alert is shorter than one.
Status FrameReader::check_beginning() const {
    ByteSpan begun = ByteSpan(header_bytes_).first(header_filled_);
    if (may_begin_frame(begun)) return {};
    if (looks_like_tls(begun)) {
        return fail(ErrorKind::invalid,
                    "the peer speaks TLS, this end does not; use --insecure-loopback on both ends or neither");
    }
    return fail(ErrorKind::invalid,
                "what arrives does not begin like a frame (\"KVF1\"); is the peer another program?");
}

Status FrameReader::begin_payload() {
    Result<FrameHeader> header = decode_header(header_bytes_, limit_);
    if (!header) return fail(header.error());
    if (checksums_ && !header->checksummed) {
        return fail(ErrorKind::invalid, "a frame without payload checksum on a connection without TLS");
    }
    header_ = *header;
    payload_.reserve(std::min(header_.payload_length, kReservedAddresses));
    payload_filled_ = 0;
    return {};
}

Result<std::optional<Frame>> FrameReader::complete() {
    if (header_.checksummed && payload_checksum(payload_) != header_.payload_checksum) {
        return fail(ErrorKind::invalid, "a frame's payload does not match its checksum");
    }
    Frame frame{header_.type, header_.request, std::move(payload_)};
    payload_ = {};
    payload_filled_ = 0;
    header_filled_ = 0;
    header_ = {};
    return frame;
}

}  // namespace kvasir
