// Numbers of section 1: conversions that are exact, rounding, and the one NaN that is ever stored. No branches on the
// machine: everything here is IEEE arithmetic or integers.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace kvasir::portable {

inline constexpr std::uint32_t kNanBits = 0x7FC00000U;
inline constexpr std::uint32_t kInfinityBits = 0x7F800000U;
inline constexpr std::uint32_t kMagnitudeBits = 0x7FFFFFFFU;

template <class T>
T load(const std::byte* from) {
    T value;
    std::memcpy(&value, from, sizeof value);
    return value;
}
template <class T>
void store(std::byte* to, T value) {
    std::memcpy(to, &value, sizeof value);
}

inline float canonical(float value) {
    return value == value ? value : std::bit_cast<float>(kNanBits);
}

// 2^exponent for -126 .. 127.
constexpr float power_of_two(int exponent) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(exponent + 127) << 23);
}

constexpr float from_half(std::uint16_t half) {
    const std::uint32_t sign = (half & 0x8000U) << 16;
    const std::uint32_t exponent = (half >> 10) & 31U;
    const std::uint32_t fraction = half & 0x3FFU;
    if (exponent == 31) return std::bit_cast<float>(sign | kInfinityBits | (fraction << 13));
    if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
    const float magnitude = static_cast<float>(fraction) * 0x1p-24F;
    return sign != 0 ? -magnitude : magnitude;
}

constexpr float from_bfloat(std::uint16_t upper) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(upper) << 16);
}

constexpr float e8m0h(std::uint8_t e) {
    return std::bit_cast<float>(e < 2 ? 0x00200000U << e : (e - 1U) << 23);
}

constexpr float ue4m3h(std::uint8_t x) {
    if (x == 0 || x == 127) return 0.0F;
    const int exponent = (x >> 3) & 15;
    const int fraction = x & 7;
    if (exponent == 0) return static_cast<float>(fraction) * 0x1p-10F;
    return static_cast<float>(8 + fraction) * power_of_two(exponent - 11);
}

// The nearest integer, ties to even, of a finite value below 2^22: adding 1.5·2^23 leaves no fraction.
inline std::int32_t nearest(float value) {
    return std::bit_cast<std::int32_t>(value + 12582912.0F) - 0x4B400000;
}

}  // namespace kvasir::portable
