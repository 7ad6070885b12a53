#include "portable/units.h"

#include "portable/grids.h"
#include "portable/numbers.h"

namespace kvasir::portable {
namespace {

constexpr int kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
constexpr int kFp4Values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// One stored block, read as the page writes it.
class Block {
  public:
    explicit Block(const std::byte* bytes) : bytes_(bytes) {}
    unsigned operator[](int index) const { return static_cast<std::uint8_t>(bytes_[index]); }
    unsigned u16(int index) const { return load<std::uint16_t>(bytes_ + index); }
    std::uint32_t u32(int index) const { return load<std::uint32_t>(bytes_ + index); }
    float f16(int index) const { return from_half(load<std::uint16_t>(bytes_ + index)); }
    int i8(int index) const {
        const auto value = static_cast<int>((*this)[index]);
        return value < 128 ? value : value - 256;
    }
    int nibble(int index, bool high) const {
        return static_cast<int>(high ? (*this)[index] >> 4 : (*this)[index] & 15);
    }
    // `count` bits of byte `index` from bit `shift` on.
    int bits(int index, int shift, int count) const {
        return static_cast<int>(((*this)[index] >> shift) & ((1U << count) - 1));
    }

  private:
    const std::byte* bytes_;
};

// ---- 32 columns

// Nibble j of the 16 bytes at `start`.
int nibble_of_32(const Block& block, int start, int j) {
    return block.nibble(start + (j & 15), j >= 16);
}

template <class Weight>
void fill(Unit& unit, int columns, Weight weight) {
    for (int j = 0; j < columns; ++j)
        unit.weight[static_cast<std::size_t>(j)] = static_cast<std::int16_t>(weight(j));
}

template <class Minimum>
void fill_minimums(Unit& unit, int columns, float scale, Minimum minimum) {
    for (int j = 0; j < columns; ++j)
        unit.minimum[static_cast<std::size_t>(j)] = static_cast<std::int16_t>(minimum(j));
    unit.minimum_scale = scale;
}

void decode_q4_0(const Block& block, Unit& unit) {
    fill(unit, 32, [&](int j) { return nibble_of_32(block, 2, j) - 8; });
    unit.scale = block.f16(0);
}

void decode_q4_1(const Block& block, Unit& unit) {
    fill(unit, 32, [&](int j) { return nibble_of_32(block, 4, j); });
    fill_minimums(unit, 32, block.f16(2), [](int) { return -1; });
    unit.scale = block.f16(0);
}

void decode_q5_0(const Block& block, Unit& unit) {
    const std::uint32_t high = block.u32(2);
    fill(unit, 32, [&](int j) { return nibble_of_32(block, 6, j) + 16 * static_cast<int>((high >> j) & 1) - 16; });
    unit.scale = block.f16(0);
}

void decode_q5_1(const Block& block, Unit& unit) {
    const std::uint32_t high = block.u32(4);
    fill(unit, 32, [&](int j) { return nibble_of_32(block, 8, j) + 16 * static_cast<int>((high >> j) & 1); });
    fill_minimums(unit, 32, block.f16(2), [](int) { return -1; });
    unit.scale = block.f16(0);
}

void decode_q8_0(const Block& block, Unit& unit) {
    fill(unit, 32, [&](int j) { return block.i8(2 + j); });
    unit.scale = block.f16(0);
}

void decode_iq4_nl(const Block& block, Unit& unit) {
    fill(unit, 32, [&](int j) { return kIq4Values[nibble_of_32(block, 2, j)]; });
    unit.scale = block.f16(0);
}

void decode_mxfp4(const Block& block, Unit& unit) {
    fill(unit, 32, [&](int j) { return kFp4Values[nibble_of_32(block, 1, j)]; });
    unit.scale = e8m0h(static_cast<std::uint8_t>(block[0]));
}

// `half` is the unit's place in its block of 64. Its upper 16 columns have a scale of their own, which is m.
void decode_nvfp4(const Block& block, int half, Unit& unit) {
    const auto value = [&](int j) {
        const int byte = 4 + 16 * half + 8 * (j >> 4) + (j & 7);
        return kFp4Values[block.nibble(byte, (j & 8) != 0)];
    };
    fill(unit, 32, [&](int j) { return j < 16 ? value(j) : 0; });
    fill_minimums(unit, 32, ue4m3h(static_cast<std::uint8_t>(block[2 * half + 1])),
                  [&](int j) { return j < 16 ? 0 : -value(j); });
    unit.scale = ue4m3h(static_cast<std::uint8_t>(block[2 * half]));
}

// ---- 256 columns

// The byte of 2-bit (or, with other bits, base-3) numbers that column j shares with three others.
int quarter_byte(int j) {
    return 32 * (j >> 7) + (j & 31);
}
int quarter_shift(int j) {
    return 2 * ((j >> 5) & 3);
}

void decode_q2_k(const Block& block, Unit& unit) {
    fill(unit, 256, [&](int j) {
        const int q = block.bits(16 + quarter_byte(j), quarter_shift(j), 2);
        return block.nibble(j >> 4, false) * q;
    });
    fill_minimums(unit, 256, block.f16(82), [&](int j) { return block.nibble(j >> 4, true); });
    unit.scale = block.f16(80);
}

void decode_q3_k(const Block& block, Unit& unit) {
    int scales[16];
    for (int s = 0; s < 16; ++s) {
        const int low = block.nibble(96 + (s & 7), s >= 8);
        const int high = block.bits(104 + (s & 3), 2 * (s >> 2), 2);
        scales[s] = low + 16 * high - 32;
    }
    fill(unit, 256, [&](int j) {
        const int low = block.bits(32 + quarter_byte(j), quarter_shift(j), 2);
        const bool high = block.bits(j & 31, j >> 5, 1) != 0;
        return scales[j >> 4] * (high ? low : low - 4);
    });
    unit.scale = block.f16(108);
}

// Scales and minimums of Q4_K and Q5_K.
struct Scales8 {
    explicit Scales8(const Block& block) {
        const auto z = [&](int i) { return static_cast<int>(block[4 + i]); };
        for (int s = 0; s < 4; ++s) {
            scale[s] = z(s) & 63;
            minimum[s] = z(s + 4) & 63;
        }
        for (int s = 4; s < 8; ++s) {
            scale[s] = (z(s + 4) & 15) + 16 * (z(s - 4) >> 6);
            minimum[s] = (z(s + 4) >> 4) + 16 * (z(s) >> 6);
        }
    }
    int scale[8];
    int minimum[8];
};

int nibble_of_64(const Block& block, int start, int j) {
    return block.nibble(start + (32 * (j >> 6) + (j & 31)), (j & 32) != 0);
}

void decode_q4_k(const Block& block, Unit& unit) {
    const Scales8 scales(block);
    fill(unit, 256, [&](int j) { return scales.scale[j >> 5] * nibble_of_64(block, 16, j); });
    fill_minimums(unit, 256, block.f16(2), [&](int j) { return scales.minimum[j >> 5]; });
    unit.scale = block.f16(0);
}

void decode_q5_k(const Block& block, Unit& unit) {
    const Scales8 scales(block);
    fill(unit, 256, [&](int j) {
        const int high = block.bits(16 + (j & 31), j >> 5, 1);
        return scales.scale[j >> 5] * (nibble_of_64(block, 48, j) + 16 * high);
    });
    fill_minimums(unit, 256, block.f16(2), [&](int j) { return scales.minimum[j >> 5]; });
    unit.scale = block.f16(0);
}

void decode_q6_k(const Block& block, Unit& unit) {
    fill(unit, 256, [&](int j) {
        const int i = j >> 7;
        const int r = (j >> 5) & 3;
        const int low = block.nibble(64 * i + 32 * (r & 1) + (j & 31), r >= 2);
        const int high = block.bits(128 + 32 * i + (j & 31), 2 * r, 2);
        const int scale = block.i8(192 + (j >> 4));
        return scale * (low + 16 * high - 32);
    });
    unit.scale = block.f16(208);
}

void decode_iq4_xs(const Block& block, Unit& unit) {
    const auto scale = [&](int s) {
        const int low = block.nibble(4 + (s >> 1), (s & 1) != 0);
        return low + 16 * static_cast<int>((block.u16(2) >> (2 * s)) & 3) - 32;
    };
    fill(unit, 256, [&](int j) {
        const int value = kIq4Values[block.nibble(8 + 16 * (j >> 5) + (j & 15), (j & 16) != 0)];
        return scale(j >> 5) * value;
    });
    unit.scale = block.f16(0);
}

// Digit k, from the top, of a byte that holds five digits of base 3.
int ternary_digit(unsigned byte, int k) {
    constexpr unsigned kPowers[5] = {1, 3, 9, 27, 81};
    return static_cast<int>((((byte * kPowers[k]) & 255) * 3) >> 8);
}

void decode_tq1_0(const Block& block, Unit& unit) {
    fill(unit, 256, [&](int j) {
        if (j < 160) return ternary_digit(block[j & 31], j >> 5) - 1;
        if (j < 240) return ternary_digit(block[32 + ((j - 160) & 15)], (j - 160) >> 4) - 1;
        return ternary_digit(block[48 + ((j - 240) & 3)], (j - 240) >> 2) - 1;
    });
    unit.scale = block.f16(52);
}

void decode_tq2_0(const Block& block, Unit& unit) {
    fill(unit, 256, [&](int j) { return block.bits(quarter_byte(j), quarter_shift(j), 2) - 1; });
    unit.scale = block.f16(64);
}

// ---- 256 columns from grids; g, l, k as on the page

// A sign byte whose bit 7 is the parity of the seven others.
unsigned signs(unsigned seven) {
    return seven | ((static_cast<unsigned>(std::popcount(seven)) & 1U) << 7);
}
int signed_value(int value, unsigned sign_byte, int k) {
    return (sign_byte >> k) & 1 ? -value : value;
}

template <class Weight>
void fill_grid(Unit& unit, Weight weight) {
    fill(unit, 256, [&](int j) { return weight(j >> 5, (j >> 3) & 3, j & 7); });
}

void decode_iq2_xxs(const Block& block, Unit& unit) {
    const Grid grid = grid_of(GridName::iq2xxs);
    fill_grid(unit, [&](int g, int l, int k) {
        const std::uint32_t b = block.u32(6 + 8 * g);
        const int value = static_cast<int>(2 * (b >> 28) + 1) * grid.at(block[2 + 8 * g + l], k);
        return signed_value(value, signs((b >> (7 * l)) & 127), k);
    });
    unit.scale = block.f16(0) * 0.125F;
}

void decode_iq2_xs(const Block& block, Unit& unit) {
    const Grid grid = grid_of(GridName::iq2xs);
    fill_grid(unit, [&](int g, int l, int k) {
        const unsigned a = block.u16(2 + 8 * g + 2 * l);
        const int value = (2 * block.nibble(66 + g, l >= 2) + 1) * grid.at(a & 511, k);
        return signed_value(value, signs(a >> 9), k);
    });
    unit.scale = block.f16(0) * 0.125F;
}

void decode_iq2_s(const Block& block, Unit& unit) {
    const Grid grid = grid_of(GridName::iq2s);
    fill_grid(unit, [&](int g, int l, int k) {
        const unsigned index = block[2 + 4 * g + l] + 256 * static_cast<unsigned>(block.bits(66 + g, 2 * l, 2));
        const int value = (2 * block.nibble(74 + g, l >= 2) + 1) * grid.at(index, k);
        return signed_value(value, block[34 + 4 * g + l], k);
    });
    unit.scale = block.f16(0) * 0.125F;
}

void decode_iq3_xxs(const Block& block, Unit& unit) {
    const Grid grid = grid_of(GridName::iq3xxs);
    fill_grid(unit, [&](int g, int l, int k) {
        const std::uint32_t b = block.u32(66 + 4 * g);
        const unsigned index = block[2 + 8 * g + 2 * l + (k >> 2)];
        const int value = static_cast<int>(2 * (b >> 28) + 1) * grid.at(index, k & 3);
        return signed_value(value, signs((b >> (7 * l)) & 127), k);
    });
    unit.scale = block.f16(0) * 0.25F;
}

void decode_iq3_s(const Block& block, Unit& unit) {
    const Grid grid = grid_of(GridName::iq3s);
    fill_grid(unit, [&](int g, int l, int k) {
        const int h = 2 * l + (k >> 2);
        const unsigned index = block[2 + 8 * g + h] + 256 * ((block[66 + g] >> h) & 1);
        const int value = (2 * block.nibble(106 + (g >> 1), (g & 1) != 0) + 1) * grid.at(index, k & 3);
        return signed_value(value, block[74 + 4 * g + l], k);
    });
    unit.scale = block.f16(0);
}

void decode_iq1_s(const Block& block, Unit& unit) {
    const Grid grid = grid_of(GridName::iq1);
    fill_grid(unit, [&](int g, int l, int k) {
        const unsigned a = block.u16(34 + 2 * g);
        const unsigned index = block[2 + 4 * g + l] + 256 * ((a >> (3 * l)) & 7);
        const int delta = (a >> 15) != 0 ? -1 : 1;
        return static_cast<int>(2 * ((a >> 12) & 7) + 1) * (8 * grid.at(index, k) + delta);
    });
    unit.scale = block.f16(0) * 0.125F;
}

void decode_iq1_m(const Block& block, Unit& unit) {
    const Grid grid = grid_of(GridName::iq1);
    fill_grid(unit, [&](int g, int l, int k) {
        const auto x = static_cast<unsigned>(block.nibble(32 + 2 * g + (l >> 1), (l & 1) != 0));
        const unsigned index = block[4 * g + l] + 256 * (x & 7);
        const int delta = x >= 8 ? -1 : 1;
        const unsigned scale = (block.u16(48 + 2 * (g >> 1)) >> (6 * (g & 1) + 3 * (l >> 1))) & 7;
        return static_cast<int>(2 * scale + 1) * (8 * grid.at(index, k) + delta);
    });
    unsigned half = 0;
    for (int i = 0; i < 4; ++i)
        half |= (block.u16(48 + 2 * i) >> 12) << (4 * i);
    unit.scale = from_half(static_cast<std::uint16_t>(half)) * 0.125F;
}

}  // namespace

void decode_unit(ggml_type type, const std::byte* row, std::size_t index, Unit& unit) {
    const TypeTraits& known = traits(type);
    const std::size_t units = known.stored_columns / block_columns(known.form);  // in a stored block
    const Block block(row + index / units * known.stored_bytes);
    switch (type) {
        case GGML_TYPE_Q4_0:
            return decode_q4_0(block, unit);
        case GGML_TYPE_Q4_1:
            return decode_q4_1(block, unit);
        case GGML_TYPE_Q5_0:
            return decode_q5_0(block, unit);
        case GGML_TYPE_Q5_1:
            return decode_q5_1(block, unit);
        case GGML_TYPE_Q8_0:
            return decode_q8_0(block, unit);
        case GGML_TYPE_IQ4_NL:
            return decode_iq4_nl(block, unit);
        case GGML_TYPE_MXFP4:
            return decode_mxfp4(block, unit);
        case GGML_TYPE_NVFP4:
            return decode_nvfp4(block, static_cast<int>(index % units), unit);
        case GGML_TYPE_Q2_K:
            return decode_q2_k(block, unit);
        case GGML_TYPE_Q3_K:
            return decode_q3_k(block, unit);
        case GGML_TYPE_Q4_K:
            return decode_q4_k(block, unit);
        case GGML_TYPE_Q5_K:
            return decode_q5_k(block, unit);
        case GGML_TYPE_Q6_K:
            return decode_q6_k(block, unit);
        case GGML_TYPE_IQ4_XS:
            return decode_iq4_xs(block, unit);
        case GGML_TYPE_TQ1_0:
            return decode_tq1_0(block, unit);
        case GGML_TYPE_TQ2_0:
            return decode_tq2_0(block, unit);
        case GGML_TYPE_IQ2_XXS:
            return decode_iq2_xxs(block, unit);
        case GGML_TYPE_IQ2_XS:
            return decode_iq2_xs(block, unit);
        case GGML_TYPE_IQ2_S:
            return decode_iq2_s(block, unit);
        case GGML_TYPE_IQ3_XXS:
            return decode_iq3_xxs(block, unit);
        case GGML_TYPE_IQ3_S:
            return decode_iq3_s(block, unit);
        case GGML_TYPE_IQ1_S:
            return decode_iq1_s(block, unit);
        case GGML_TYPE_IQ1_M:
            return decode_iq1_m(block, unit);
        default:
            return;
    }
}

float decode_column(ggml_type type, const std::byte* row, std::size_t index) {
    switch (type) {
        case GGML_TYPE_F16:
            return from_half(load<std::uint16_t>(row + 2 * index));
        case GGML_TYPE_BF16:
            return from_bfloat(load<std::uint16_t>(row + 2 * index));
        default:
            return load<float>(row + 4 * index);
    }
}

}  // namespace kvasir::portable
