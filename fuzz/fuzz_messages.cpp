// Payloads from anybody: the first byte chooses the message, the rest is its payload. What a decoder accepts encodes to
// the same bytes again.
#include <algorithm>
#include <cstdlib>
#include <span>
#include <vector>

#include "wire/attestation.h"
#include "wire/messages.h"

namespace {

using namespace kvasir;

template <class T>
void expect_same(const Result<T>& message, const ByteVector& payload) {
    if (message && encode(*message) != payload) std::abort();
}

// What a backbone does with the rows of a result: reading them may be refused, but what is read is written again.
void expect_result_read(const ComputeResult& result) {
    const std::size_t rows = result.rows.size() / row_bytes(result.encoding, result.hidden);
    std::vector<float> numbers(rows * result.hidden);
    if (!decode_results(result.encoding, result.hidden, result.rows, numbers)) return;
    ByteVector written(result.rows.size());
    encode_rows(result.encoding, result.hidden, numbers, written);
    std::vector<float> again(numbers.size());
    if (!decode_results(result.encoding, result.hidden, written, again)) std::abort();
    if (!std::ranges::equal(std::as_bytes(std::span(again)), std::as_bytes(std::span(numbers)))) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) return 0;
    // A copy has the alignment of a frame's payload.
    const auto* bytes = reinterpret_cast<const std::byte*>(data);
    ByteVector payload(bytes + 1, bytes + size);
    switch (data[0] % 8) {
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
                const std::size_t row_size = row_bytes(compute->encoding, compute->hidden);
                if (row_size == 0 || compute->rows.size() % row_size != 0) std::abort();
                for (const Pair& pair : compute->pairs) {
                    if (pair.row >= compute->rows.size() / row_size) std::abort();
                }
                expect_same(compute, payload);
            }
            break;
        case 3:
            if (Result<ComputeResult> result = decode_result(payload)) {
                expect_result_read(*result);
                expect_same(result, payload);
            }
            break;
        case 4:
            expect_same(decode_error(payload), payload);
            break;
        case 5:
            expect_same(decode_pong(payload), payload);
            break;
        case 6:
            expect_same(decode_update(payload), payload);
            break;
        default:
            if (Result<Attestation> attestation = decode_attestation(payload)) {
                ByteVector again = encode_unsigned(attestation->key, attestation->answers);
                again.insert(again.end(), attestation->signature.begin(), attestation->signature.end());
                if (again != payload) std::abort();
            }
            break;
    }
    return 0;
}
