// Payloads from anybody: the first byte chooses the message, the rest is its payload. What a decoder accepts encodes to
// the same bytes again.
#include <cstdlib>

#include "wire/messages.h"

namespace {

using namespace kvasir;

template <class T>
void expect_same(const Result<T>& message, const ByteVector& payload) {
    if (message && encode(*message) != payload) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) return 0;
    // A copy has the alignment of a frame's payload.
    const auto* bytes = reinterpret_cast<const std::byte*>(data);
    ByteVector payload(bytes + 1, bytes + size);
    switch (data[0] % 7) {
        case 0: {
            Result<Hello> hello = decode_hello(payload);
            // Of a range that reaches beyond this version not everything was read.
            if (hello && hello->newest_version == kProtocolVersion && hello->oldest_version <= kProtocolVersion) {
                expect_same(hello, payload);
            }
            break;
        }
        case 1:
            expect_same(decode_welcome(payload), payload);
            break;
        case 2:
            if (Result<Compute> compute = decode_compute(payload)) {
                for (const Pair& pair : compute->pairs) {
                    if (pair.row >= compute->rows.size() / compute->hidden) std::abort();
                }
                expect_same(compute, payload);
            }
            break;
        case 3:
            expect_same(decode_result(payload), payload);
            break;
        case 4:
            expect_same(decode_error(payload), payload);
            break;
        case 5:
            expect_same(decode_pong(payload), payload);
            break;
        default:
            expect_same(decode_update(payload), payload);
            break;
    }
    return 0;
}
