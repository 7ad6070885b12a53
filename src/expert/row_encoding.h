// How rows of numbers travel: activations in COMPUTE, outputs in RESULT.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "base/result.h"

namespace kvasir {

// Values are wire format: never renumber. The layouts of all but the first are those of docs/portable-arithmetic.md.
enum class RowEncoding : std::uint8_t {
    f32 = 0,
    q8x256 = 1,   // activations: blocks of 256, f32 scale and int8
    q8x32 = 2,    // activations: blocks of 32
    i16x256 = 3,  // results: blocks of 256 (the last may be shorter), one exponent and int16
};

inline constexpr std::uint8_t kLastRowEncoding = 3;

// Bytes of a row of `columns` numbers; 0 where a row of that length cannot be encoded so.
constexpr std::size_t row_bytes(RowEncoding encoding, std::size_t columns) {
    switch (encoding) {
        case RowEncoding::f32:
            return columns * sizeof(float);
        case RowEncoding::q8x256:
            return columns % 256 == 0 ? columns / 256 * 260 : 0;
        case RowEncoding::q8x32:
            return columns % 32 == 0 ? columns / 32 * 36 : 0;
        case RowEncoding::i16x256:
            return 2 * columns + 2 * ((columns + 255) / 256);
    }
    return 0;
}

// rows: [n][columns]; out: n encoded rows. `columns` must suit the encoding. Exact for f32, rounded as specified else.
void encode_rows(RowEncoding encoding, std::size_t columns, std::span<const float> rows, std::span<std::byte> out);

// Result rows (f32 or i16x256): n encoded rows → out [n][columns]. Refuses what an encoder never writes; `out` is then
// unspecified.
Status decode_results(RowEncoding encoding, std::size_t columns, ByteSpan rows, std::span<float> out);

}  // namespace kvasir
