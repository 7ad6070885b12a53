#include "portable/random.h"

#include <algorithm>
#include <bit>

#include "portable/numbers.h"

namespace kvasir::portable::test {
namespace {

// Where the scales of a stored block lie that are f16 numbers.
std::vector<std::size_t> half_scales(ggml_type type) {
    switch (type) {
        case GGML_TYPE_Q4_1:
        case GGML_TYPE_Q5_1:
        case GGML_TYPE_Q4_K:
        case GGML_TYPE_Q5_K:
            return {0, 2};
        case GGML_TYPE_Q2_K:
            return {80, 82};
        case GGML_TYPE_Q3_K:
            return {108};
        case GGML_TYPE_Q6_K:
            return {208};
        case GGML_TYPE_TQ1_0:
            return {52};
        case GGML_TYPE_TQ2_0:
            return {64};
        case GGML_TYPE_F32:
        case GGML_TYPE_F16:
        case GGML_TYPE_BF16:
        case GGML_TYPE_MXFP4:
        case GGML_TYPE_NVFP4:
        case GGML_TYPE_IQ1_M:
            return {};
        default:
            return {0};
    }
}

// f16 of either sign between 2^-9 and 2^-5.
std::uint16_t sane_half(Random& random) {
    const std::uint64_t sign = random.below(2);
    const std::uint64_t exponent = 6 + random.below(4);
    return static_cast<std::uint16_t>(sign << 15 | exponent << 10 | random.below(1024));
}

void make_sane(Random& random, ggml_type type, std::byte* block) {
    for (std::size_t at : half_scales(type))
        store(block + at, sane_half(random));
    switch (type) {
        case GGML_TYPE_F32:
            store(block, random.normal());
            break;
        case GGML_TYPE_F16:
            store(block, sane_half(random));
            break;
        case GGML_TYPE_BF16:
            store(block, static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(random.normal()) >> 16));
            break;
        case GGML_TYPE_MXFP4:
            store(block, static_cast<std::uint8_t>(118 + random.below(8)));
            break;
        case GGML_TYPE_NVFP4:
            for (std::size_t i = 0; i < 4; ++i)
                store(block + i, static_cast<std::uint8_t>(16 + random.below(64)));
            break;
        case GGML_TYPE_IQ1_M: {
            const std::uint16_t half = sane_half(random);
            for (std::size_t i = 0; i < 4; ++i) {
                const auto nibble = static_cast<std::uint16_t>((half >> (4 * i)) & 15);
                const auto rest = static_cast<std::uint16_t>(load<std::uint16_t>(block + 48 + 2 * i) & 0x0FFF);
                store(block + 48 + 2 * i, static_cast<std::uint16_t>(rest | nibble << 12));
            }
            break;
        }
        default:
            break;
    }
}

}  // namespace

std::uint64_t Random::bits() {
    state_ += 0x9E3779B97F4A7C15ULL;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
}

float Random::normal() {
    std::int64_t sum = 0;
    for (int i = 0; i < 12; ++i)
        sum += static_cast<std::int64_t>(bits() >> 44);
    return static_cast<float>(sum - 6 * (std::int64_t{1} << 20)) * 0x1p-20F;
}

float Random::any_float() {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits() >> 32));
}

std::vector<ggml_type> all_types() {
    std::vector<ggml_type> types;
    for (int number = 0; number < GGML_TYPE_COUNT; ++number) {
        if (find_traits(static_cast<ggml_type>(number)) != nullptr) types.push_back(static_cast<ggml_type>(number));
    }
    return types;
}

std::vector<float> normal_row(Random& random, std::size_t columns, float scale) {
    std::vector<float> row(columns);
    for (float& x : row)
        x = random.normal() * scale;
    return row;
}

ByteVector weights(Random& random, ggml_type type, std::size_t rows, std::size_t columns, Fill fill) {
    ByteVector bytes(rows * weight_row_bytes(type, columns));
    const bool extreme = fill == Fill::largest;
    for (std::byte& byte : bytes)
        byte = extreme ? std::byte{random.below(2) != 0 ? std::uint8_t{255} : std::uint8_t{0}}
                       : static_cast<std::byte>(random.bits() & 255);
    if (fill == Fill::anything) return bytes;
    for (std::size_t at = 0; at < bytes.size(); at += traits(type).stored_bytes)
        make_sane(random, type, bytes.data() + at);
    return bytes;
}

}  // namespace kvasir::portable::test
