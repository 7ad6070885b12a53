#include "portable/unit_bytes.h"

#include <array>
#include <bit>
#include <vector>

#include "portable/grids.h"
#include "portable/numbers.h"

namespace kvasir::portable {
namespace {

constexpr std::uint64_t kOnes = 0x0101010101010101U;

unsigned byte_at(const std::byte* block, std::size_t at) {
    return static_cast<std::uint8_t>(block[at]);
}
unsigned nibble(unsigned byte, bool high) {
    return high ? byte >> 4 : byte & 15U;
}
float half_at(const std::byte* block, std::size_t at) {
    return from_half(load<std::uint16_t>(block + at));
}

// Of a sign byte: the bytes that are to be negative.
constexpr auto kNegative = [] {
    std::array<std::uint64_t, 256> masks{};
    for (unsigned signs = 0; signs < 256; ++signs) {
        for (unsigned k = 0; k < 8; ++k)
            masks[signs] |= (signs >> k & 1U) != 0 ? std::uint64_t{255} << (8 * k) : 0;
    }
    return masks;
}();
// Of seven bits, the eighth being their parity.
constexpr auto kNegativeBySeven = [] {
    std::array<std::uint64_t, 128> masks{};
    for (unsigned seven = 0; seven < 128; ++seven)
        masks[seven] = kNegative[seven | (static_cast<unsigned>(std::popcount(seven)) & 1U) << 7];
    return masks;
}();

// Eight columns, positive in the grid and never 0: so nothing is carried from byte to byte.
void put(UnitBytes& unit, std::size_t eight, std::uint64_t values, std::uint64_t negative) {
    const std::uint64_t signed_values = (values ^ negative) + (negative & kOnes);
    std::memcpy(unit.q + 8 * eight, &signed_values, 8);
}
void put_scale(UnitBytes& unit, std::size_t s, unsigned c) {
    unit.c[8 * (s & 1) + s / 2] = static_cast<std::int16_t>(c);
}
void put_scale_of_32(UnitBytes& unit, std::size_t g, unsigned c) {
    put_scale(unit, 2 * g, c);
    put_scale(unit, 2 * g + 1, c);
}

std::uint64_t eight_of(const std::int8_t* grid, std::size_t entry) {
    std::uint64_t values;
    std::memcpy(&values, grid + 8 * entry, 8);
    return values;
}
std::uint64_t two_fours_of(const std::int8_t* grid, std::size_t first, std::size_t second) {
    std::uint32_t low;
    std::uint32_t high;
    std::memcpy(&low, grid + 4 * first, 4);
    std::memcpy(&high, grid + 4 * second, 4);
    return low | std::uint64_t{high} << 32;
}

void decode_iq2_xxs(const std::byte* block, UnitBytes& unit) {
    static const std::int8_t* const grid = grid_of(GridName::iq2xxs).values;
    for (std::size_t g = 0; g < 8; ++g) {
        const auto a = load<std::uint32_t>(block + 2 + 8 * g);
        const auto b = load<std::uint32_t>(block + 6 + 8 * g);
        put_scale_of_32(unit, g, 2 * (b >> 28) + 1);
        for (unsigned l = 0; l < 4; ++l)
            put(unit, 4 * g + l, eight_of(grid, a >> 8 * l & 255), kNegativeBySeven[b >> 7 * l & 127]);
    }
    unit.scale = half_at(block, 0) * 0.125F;
}

void decode_iq2_xs(const std::byte* block, UnitBytes& unit) {
    static const std::int8_t* const grid = grid_of(GridName::iq2xs).values;
    for (std::size_t g = 0; g < 8; ++g) {
        const unsigned c = byte_at(block, 66 + g);
        put_scale(unit, 2 * g, 2 * nibble(c, false) + 1);
        put_scale(unit, 2 * g + 1, 2 * nibble(c, true) + 1);
        for (unsigned l = 0; l < 4; ++l) {
            const unsigned a = load<std::uint16_t>(block + 2 + 8 * g + 2 * l);
            put(unit, 4 * g + l, eight_of(grid, a & 511), kNegativeBySeven[a >> 9]);
        }
    }
    unit.scale = half_at(block, 0) * 0.125F;
}

void decode_iq2_s(const std::byte* block, UnitBytes& unit) {
    static const std::int8_t* const grid = grid_of(GridName::iq2s).values;
    for (std::size_t g = 0; g < 8; ++g) {
        const unsigned c = byte_at(block, 74 + g);
        const unsigned high = byte_at(block, 66 + g);
        put_scale(unit, 2 * g, 2 * nibble(c, false) + 1);
        put_scale(unit, 2 * g + 1, 2 * nibble(c, true) + 1);
        for (unsigned l = 0; l < 4; ++l) {
            const unsigned index = byte_at(block, 2 + 4 * g + l) | (high >> 2 * l & 3) << 8;
            put(unit, 4 * g + l, eight_of(grid, index), kNegative[byte_at(block, 34 + 4 * g + l)]);
        }
    }
    unit.scale = half_at(block, 0) * 0.125F;
}

void decode_iq3_xxs(const std::byte* block, UnitBytes& unit) {
    static const std::int8_t* const grid = grid_of(GridName::iq3xxs).values;
    for (std::size_t g = 0; g < 8; ++g) {
        const auto b = load<std::uint32_t>(block + 66 + 4 * g);
        put_scale_of_32(unit, g, 2 * (b >> 28) + 1);
        for (unsigned l = 0; l < 4; ++l) {
            const std::size_t at = 2 + 8 * g + 2 * l;
            put(unit, 4 * g + l, two_fours_of(grid, byte_at(block, at), byte_at(block, at + 1)),
                kNegativeBySeven[b >> 7 * l & 127]);
        }
    }
    unit.scale = half_at(block, 0) * 0.25F;
}

void decode_iq3_s(const std::byte* block, UnitBytes& unit) {
    static const std::int8_t* const grid = grid_of(GridName::iq3s).values;
    for (std::size_t g = 0; g < 8; ++g) {
        const unsigned high = byte_at(block, 66 + g);
        put_scale_of_32(unit, g, 2 * nibble(byte_at(block, 106 + g / 2), g % 2 != 0) + 1);
        for (unsigned l = 0; l < 4; ++l) {
            const std::size_t at = 2 + 8 * g + 2 * l;
            const unsigned first = byte_at(block, at) | (high >> 2 * l & 1) << 8;
            const unsigned second = byte_at(block, at + 1) | (high >> (2 * l + 1) & 1) << 8;
            put(unit, 4 * g + l, two_fours_of(grid, first, second), kNegative[byte_at(block, 74 + 4 * g + l)]);
        }
    }
    unit.scale = half_at(block, 0);
}

// 8·iq1 + 1, and after all of these 8·iq1 − 1.
const std::int8_t* iq1_grids() {
    static const std::vector<std::int8_t> both = [] {
        const Grid grid = grid_of(GridName::iq1);
        std::vector<std::int8_t> made;
        for (int delta : {1, -1}) {
            for (std::size_t i = 0; i < 8 * grid.entries; ++i)
                made.push_back(static_cast<std::int8_t>(8 * grid.values[i] + delta));
        }
        return made;
    }();
    return both.data();
}
constexpr std::size_t kIq1Entries = 2048;

void decode_iq1_s(const std::byte* block, UnitBytes& unit) {
    static const std::int8_t* const grids = iq1_grids();
    for (std::size_t g = 0; g < 8; ++g) {
        const unsigned a = load<std::uint16_t>(block + 34 + 2 * g);
        const std::size_t grid = (a >> 15) * kIq1Entries;
        put_scale_of_32(unit, g, 2 * (a >> 12 & 7) + 1);
        for (unsigned l = 0; l < 4; ++l) {
            const unsigned index = byte_at(block, 2 + 4 * g + l) | (a >> 3 * l & 7) << 8;
            put(unit, 4 * g + l, eight_of(grids, grid + index), 0);
        }
    }
    unit.scale = half_at(block, 0) * 0.125F;
}

void decode_iq1_m(const std::byte* block, UnitBytes& unit) {
    static const std::int8_t* const grids = iq1_grids();
    unsigned half = 0;
    for (std::size_t g = 0; g < 8; ++g) {
        const unsigned scales = load<std::uint16_t>(block + 48 + 2 * (g / 2));
        if (g % 2 == 0) half |= scales >> 12 << (2 * g);
        put_scale(unit, 2 * g, 2 * (scales >> 6 * (g % 2) & 7) + 1);
        put_scale(unit, 2 * g + 1, 2 * (scales >> (6 * (g % 2) + 3) & 7) + 1);
        for (unsigned l = 0; l < 4; ++l) {
            const unsigned x = nibble(byte_at(block, 32 + 2 * g + l / 2), l % 2 != 0);
            const unsigned index = byte_at(block, 4 * g + l) | (x & 7) << 8;
            put(unit, 4 * g + l, eight_of(grids, (x >> 3) * kIq1Entries + index), 0);
        }
    }
    unit.scale = from_half(static_cast<std::uint16_t>(half)) * 0.125F;
}

void put_ones(UnitBytes& unit) {
    for (std::int16_t& c : unit.c)
        c = 1;
}

// Digits of base 3 of `count` bytes, the highest `digits` of each.
std::int8_t* put_digits(const std::byte* from, std::size_t count, std::size_t digits, std::int8_t* q) {
    std::uint8_t bytes[32];
    std::memcpy(bytes, from, count);
    for (std::size_t k = 0; k < digits; ++k) {
        for (std::size_t i = 0; i < count; ++i) {
            const unsigned times_3 = bytes[i] * 3U;
            *q++ = static_cast<std::int8_t>(static_cast<int>(times_3 >> 8) - 1);
            bytes[i] = static_cast<std::uint8_t>(times_3);
        }
    }
    return q;
}

void decode_tq1_0(const std::byte* block, UnitBytes& unit) {
    std::int8_t* q = put_digits(block, 32, 5, unit.q);
    q = put_digits(block + 32, 16, 5, q);
    put_digits(block + 48, 4, 4, q);
    put_ones(unit);
    unit.scale = half_at(block, 52);
}

void decode_tq2_0(const std::byte* block, UnitBytes& unit) {
    std::int8_t* q = unit.q;
    for (std::size_t half = 0; half < 2; ++half) {
        for (unsigned quarter = 0; quarter < 4; ++quarter) {
            for (std::size_t i = 0; i < 32; ++i)
                *q++ =
                    static_cast<std::int8_t>(static_cast<int>(byte_at(block, 32 * half + i) >> 2 * quarter & 3U) - 1);
        }
    }
    put_ones(unit);
    unit.scale = half_at(block, 64);
}

using Decode = void (*)(const std::byte* block, UnitBytes& unit);

Decode decoder_of(ggml_type type) {
    switch (type) {
        case GGML_TYPE_IQ2_XXS:
            return decode_iq2_xxs;
        case GGML_TYPE_IQ2_XS:
            return decode_iq2_xs;
        case GGML_TYPE_IQ2_S:
            return decode_iq2_s;
        case GGML_TYPE_IQ3_XXS:
            return decode_iq3_xxs;
        case GGML_TYPE_IQ3_S:
            return decode_iq3_s;
        case GGML_TYPE_IQ1_S:
            return decode_iq1_s;
        case GGML_TYPE_IQ1_M:
            return decode_iq1_m;
        case GGML_TYPE_TQ1_0:
            return decode_tq1_0;
        case GGML_TYPE_TQ2_0:
            return decode_tq2_0;
        default:
            return nullptr;
    }
}

}  // namespace

bool has_unit_bytes(ggml_type type) {
    return decoder_of(type) != nullptr;
}

void decode_unit_bytes(ggml_type type, const std::byte* block, UnitBytes& unit) {
    decoder_of(type)(block, unit);
}

}  // namespace kvasir::portable
