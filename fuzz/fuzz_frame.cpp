// Frame headers from anybody: what decode_header() accepts is within the limit and encodes to the same bytes.
#include <algorithm>
#include <cstdlib>

#include "wire/frame.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace kvasir;
    if (size < kFrameHeaderBytes) return 0;
    std::array<std::byte, kFrameHeaderBytes> bytes{};
    std::memcpy(bytes.data(), data, bytes.size());
    constexpr std::uint64_t kLimit = 1 << 24;
    // As the bytes are, and with the checksum right, which mutations alone would hardly ever hit.
    for (bool repaired : {false, true}) {
        if (repaired) {
            std::uint32_t checksum = payload_checksum(ByteSpan(bytes).first(28));
            std::memcpy(bytes.data() + 28, &checksum, sizeof(checksum));
        }
        Result<FrameHeader> header = decode_header(bytes, kLimit);
        if (!header) continue;
        bool rows = header->type == FrameType::compute || header->type == FrameType::result;
        if (header->payload_length > (rows ? kLimit : kControlPayloadLimit)) std::abort();
        if (encode_header(*header) != bytes || !may_begin_frame(bytes)) std::abort();
    }
    return 0;
}
