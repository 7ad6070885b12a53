#include "wire/frame.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>

namespace kvasir {
namespace {

constexpr std::uint32_t kMagic = 0x3146564B;  // "KVF1"
constexpr std::uint8_t kFlagChecksummed = 1;
constexpr std::size_t kChecksumOffset = 28;

std::uint32_t checksum(ByteSpan bytes) {
    return static_cast<std::uint32_t>(XXH3_64bits(bytes.data(), bytes.size()));
}

bool known(std::uint8_t type) {
    return type >= static_cast<std::uint8_t>(FrameType::hello) && type <= static_cast<std::uint8_t>(FrameType::attest);
}

bool carries_rows(FrameType type) {
    return type == FrameType::compute || type == FrameType::result;
}

}  // namespace

std::array<std::byte, kFrameHeaderBytes> encode_header(const FrameHeader& header) {
    std::array<std::byte, kFrameHeaderBytes> bytes{};
    std::size_t at = 0;
    auto put = [&](auto value) {
        std::memcpy(bytes.data() + at, &value, sizeof(value));
        at += sizeof(value);
    };
    put(kMagic);
    put(static_cast<std::uint8_t>(header.type));
    put(header.checksummed ? kFlagChecksummed : std::uint8_t{0});
    put(std::uint16_t{0});
    put(header.request);
    put(header.payload_length);
    put(header.payload_checksum);
    put(checksum(ByteSpan(bytes).first(kChecksumOffset)));
    return bytes;
}

Result<FrameHeader> decode_header(std::span<const std::byte, kFrameHeaderBytes> bytes, std::uint64_t payload_limit) {
    ByteReader reader(bytes);
    auto magic = reader.read<std::uint32_t>();
    auto type = reader.read<std::uint8_t>();
    auto flags = reader.read<std::uint8_t>();
    auto reserved = reader.read<std::uint16_t>();
    FrameHeader header;
    header.request = reader.read<std::uint64_t>();
    header.payload_length = reader.read<std::uint64_t>();
    header.payload_checksum = reader.read<std::uint32_t>();
    auto header_checksum = reader.read<std::uint32_t>();

    if (magic != kMagic) {
        return fail(ErrorKind::invalid, "frame magic is {:#010x}, not {:#010x} (\"KVF1\")", magic, kMagic);
    }
    std::uint32_t actual = checksum(ByteSpan(bytes).first(kChecksumOffset));
    if (header_checksum != actual) {
        return fail(ErrorKind::invalid, "frame header checksum is {:#010x}, its bytes give {:#010x}", header_checksum,
                    actual);
    }
    if (!known(type)) return fail(ErrorKind::invalid, "frame type {} is unknown", type);
    if ((flags & ~kFlagChecksummed) != 0) return fail(ErrorKind::invalid, "frame flags {:#04x} are unknown", flags);
    if (reserved != 0) return fail(ErrorKind::invalid, "the frame's reserved bits are {:#06x}, not 0", reserved);
    header.type = static_cast<FrameType>(type);
    header.checksummed = (flags & kFlagChecksummed) != 0;
    if (!header.checksummed && header.payload_checksum != 0) {
        return fail(ErrorKind::invalid, "the frame has a payload checksum, but its flag is not set");
    }
    std::uint64_t limit = carries_rows(header.type) ? payload_limit : std::min(payload_limit, kControlPayloadLimit);
    if (header.payload_length > limit) {
        return fail(ErrorKind::invalid, "a frame of type {} announces {} payload bytes; the limit is {}", type,
                    header.payload_length, limit);
    }
    return header;
}

bool may_begin_frame(ByteSpan bytes) {
    return std::memcmp(bytes.data(), &kMagic, std::min(bytes.size(), sizeof(kMagic))) == 0;
}

std::uint32_t payload_checksum(ByteSpan payload) {
    return checksum(payload);
}

}  // namespace kvasir
