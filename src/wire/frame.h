// The frame: how every message travels. The whole protocol is on one page in docs/protocol.md.
//
//   offset  size  field
//        0     4  magic              "KVF1"
//        4     1  type               FrameType
//        5     1  flags              bit 0: payload_checksum is set (connections without TLS)
//        6     2  zero
//        8     8  request            id chosen by the asker; an answer carries it back; 0 where none is asked
//       16     8  payload_length     bounded by the limit agreed in the handshake, before anything is allocated
//       24     4  payload_checksum   low 32 bits of XXH3-64 of the payload, or 0
//       28     4  header_checksum    low 32 bits of XXH3-64 of bytes 0–27
//       32     …  payload
#pragma once

#include <array>
#include <cstdint>

#include "base/bytes.h"
#include "base/result.h"

namespace kvasir {

enum class FrameType : std::uint8_t {
    hello = 1,    // backbone → worker, first frame
    welcome = 2,  // worker → backbone, its answer
    compute = 3,  // backbone → worker
    result = 4,   // worker → backbone
    error = 5,    // either way: answers a request, or (request 0) says why the connection ends
    ping = 6,     // either way
    pong = 7,     // with load
    cancel = 8,   // backbone → worker: request `request` is no longer wanted
    drain = 9,    // worker → backbone: finishes what it has, takes nothing new
    update = 10,  // worker → backbone: pieces changed, new epoch
    attest = 11,  // worker → backbone: signs what it answered (wire/attestation.h)
};

struct Frame {
    FrameType type = FrameType::ping;
    std::uint64_t request = 0;
    ByteVector payload;
};

inline constexpr std::size_t kFrameHeaderBytes = 32;
// Until a handshake agreed on more, and for all types but compute and result.
inline constexpr std::uint64_t kControlPayloadLimit = 1 << 20;
// The most that a handshake may agree on.
inline constexpr std::uint64_t kPayloadLimit = std::uint64_t{1} << 30;

struct FrameHeader {
    FrameType type = FrameType::ping;
    bool checksummed = false;
    std::uint64_t request = 0;
    std::uint64_t payload_length = 0;
    std::uint32_t payload_checksum = 0;
};

std::array<std::byte, kFrameHeaderBytes> encode_header(const FrameHeader& header);
// Errors name the field: magic, type, flags, reserved bits, checksum, or a payload over the bound (`payload_limit` for
// compute and result, kControlPayloadLimit for the others).
Result<FrameHeader> decode_header(std::span<const std::byte, kFrameHeaderBytes> bytes, std::uint64_t payload_limit);

// Whether bytes may be the beginning of a frame, as far as their first four tell.
bool may_begin_frame(ByteSpan bytes);

std::uint32_t payload_checksum(ByteSpan payload);

}  // namespace kvasir
