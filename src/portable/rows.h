// Sections 2, 5, 6 and 7 as loops that a compiler can vectorise: no calls, no branches on the numbers of a row. Each is
// a template over the instruction set's tag, so that every set has code of its own.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "portable/prepared.h"
#include "portable/types.h"

namespace kvasir::portable {

template <class Tag>
struct Rows {
    static std::uint32_t bits_of(float x) { return std::bit_cast<std::uint32_t>(x); }
    static float float_of(std::uint32_t bits) { return std::bit_cast<float>(bits); }
    static float canonical(float x) { return x == x ? x : float_of(0x7FC00000U); }
    static std::int32_t nearest(float x) { return std::bit_cast<std::int32_t>(x + 12582912.0F) - 0x4B400000; }

    // The bits of the largest magnitude; NaN and infinities are above all numbers.
    static std::uint32_t largest_magnitude(const float* x, std::size_t count) {
        std::uint32_t largest = 0;
        for (std::size_t i = 0; i < count; ++i) {
            const std::uint32_t magnitude = bits_of(x[i]) & 0x7FFFFFFFU;
            largest = largest > magnitude ? largest : magnitude;
        }
        return largest;
    }

    static float first_of_magnitude(const float* x, std::uint32_t magnitude) {
        while ((bits_of(*x) & 0x7FFFFFFFU) != magnitude)
            ++x;
        return *x;
    }

    template <std::size_t kColumns>
    static void quantise_block(const float* x, std::byte* out) {
        const std::uint32_t largest = largest_magnitude(x, kColumns);
        float scale = 0.0F;
        std::int8_t q[kColumns] = {};
        if (largest >= 0x7F800000U) {
            scale = float_of(0x7FC00000U);
        } else if (float_of(largest) >= 0x1p-100F) {
            float factor;
            if constexpr (kColumns == 256) {
                factor = -127.0F / first_of_magnitude(x, largest);
                scale = 1.0F / factor;
            } else {
                scale = float_of(largest) / 127.0F;
                factor = 1.0F / scale;
            }
            for (std::size_t i = 0; i < kColumns; ++i)
                q[i] = static_cast<std::int8_t>(nearest(x[i] * factor));
        }
        std::memcpy(out, &scale, sizeof scale);
        std::memcpy(out + sizeof scale, q, kColumns);
    }

    static void quantise(Form form, const float* row, std::size_t columns, std::byte* out) {
        switch (form) {
            case Form::f32:
                std::memcpy(out, row, columns * sizeof(float));
                break;
            case Form::q8x256:
                for (std::size_t i = 0; i < columns; i += 256)
                    quantise_block<256>(row + i, out + i / 256 * 260);
                break;
            case Form::q8x32:
                for (std::size_t i = 0; i < columns; i += 32)
                    quantise_block<32>(row + i, out + i / 32 * 36);
                break;
        }
    }

    static std::int16_t sum_of_16(const std::int8_t* q) {
        std::int16_t sum = 0;
        for (int i = 0; i < 16; ++i)
            sum = static_cast<std::int16_t>(sum + q[i]);
        return sum;
    }
    template <std::size_t kColumns>
    static void read_integers(const std::byte* from, std::int8_t* q) {
        std::memcpy(q, from, kColumns);
        for (std::size_t i = 0; i < kColumns; ++i)
            q[i] = q[i] < -127 ? std::int8_t{-127} : q[i];
    }
    static void read_block(const std::byte* from, Wide& block) {
        // Places of the sums of four groups, and of eight: see Wide.
        constexpr std::size_t kPlaces[8] = {0, 2, 1, 3, 4, 6, 5, 7};
        std::memcpy(&block.scale, from, sizeof(float));
        read_integers<256>(from + 4, block.q);
        std::int16_t sums[16];
        for (std::size_t i = 0; i < 16; ++i)
            sums[i] = sum_of_16(block.q + 16 * i);
        for (std::size_t i = 0; i < 8; ++i) {
            block.sums16[kPlaces[i]] = sums[i];
            block.sums16[8 + kPlaces[i]] = sums[8 + i];
            block.sums32[kPlaces[i]] = static_cast<std::int16_t>(sums[2 * i] + sums[2 * i + 1]);
        }
    }
    static void read_block(const std::byte* from, Narrow& block) {
        std::memcpy(&block.scale, from, sizeof(float));
        read_integers<32>(from + 4, block.q);
        block.low_sum = sum_of_16(block.q);
        block.high_sum = sum_of_16(block.q + 16);
    }

    // Blocks of Wide, Narrow or float, as `form` says.
    static void read(const std::byte* bytes, Form form, std::size_t units, void* blocks) {
        switch (form) {
            case Form::f32:
                std::memcpy(blocks, bytes, units * sizeof(float));
                break;
            case Form::q8x256:
                for (std::size_t i = 0; i < units; ++i)
                    read_block(bytes + i * 260, static_cast<Wide*>(blocks)[i]);
                break;
            case Form::q8x32:
                for (std::size_t i = 0; i < units; ++i)
                    read_block(bytes + i * 36, static_cast<Narrow*>(blocks)[i]);
                break;
        }
    }
    static void prepare(const float* values, Form form, std::size_t units, void* blocks) {
        std::byte bytes[260];
        switch (form) {
            case Form::f32:
                std::memcpy(blocks, values, units * sizeof(float));
                break;
            case Form::q8x256:
                for (std::size_t i = 0; i < units; ++i) {
                    quantise_block<256>(values + i * 256, bytes);
                    read_block(bytes, static_cast<Wide*>(blocks)[i]);
                }
                break;
            case Form::q8x32:
                for (std::size_t i = 0; i < units; ++i) {
                    quantise_block<32>(values + i * 32, bytes);
                    read_block(bytes, static_cast<Narrow*>(blocks)[i]);
                }
                break;
        }
    }

    static double exponential(double t) {
        constexpr double kShift = 0x1.8p52;  // adding it leaves the nearest integer in the low bits
        t = t > -200.0 ? t : -200.0;
        t = t < 200.0 ? t : 200.0;
        const double shifted = t * 0x1.71547652b82fep+0 + kShift;
        const double r = t - (shifted - kShift) * 0x1.62e42fefa39efp-1;
        double p = 1.0 / 40320;
        p = p * r + 1.0 / 5040;
        p = p * r + 1.0 / 720;
        p = p * r + 1.0 / 120;
        p = p * r + 1.0 / 24;
        p = p * r + 1.0 / 6;
        p = p * r + 0.5;
        p = p * r + 1.0;
        p = p * r + 1.0;
        const std::uint64_t power = (std::bit_cast<std::uint64_t>(shifted) + 1023) << 52;
        return p * std::bit_cast<double>(power);
    }
    static float over_one_plus_exponential(float g, double t) {
        return static_cast<float>(static_cast<double>(g) / (1.0 + exponential(t)));
    }
    static float silu(float x) { return over_one_plus_exponential(x, -static_cast<double>(x)); }
    static float gelu(float x) {
        const double g = x;
        return over_one_plus_exponential(x, -(0x1.9884533d43651p+0 * (g + (0x1.6e4e26d4801f7p-5 * g) * (g * g))));
    }
    static float smaller(float a, float b) { return a < b ? a : b; }
    static float larger(float a, float b) { return a > b ? a : b; }
    static float within(float x, float limit) { return larger(smaller(x, limit), -limit); }

    // A comparison may lose the NaN of an argument: the value is replaced at the end.
    template <class F>
    static void for_pairs(const float* gate, const float* up, std::size_t count, float* out, F function) {
        for (std::size_t i = 0; i < count; ++i) {
            const float g = gate[i];
            const float u = up[i];
            const float value = function(g, u);
            out[i] = g == g && u == u ? canonical(value) : float_of(0x7FC00000U);
        }
    }
    template <class F>
    static void for_each(const float* up, std::size_t count, float* out, F function) {
        for (std::size_t i = 0; i < count; ++i) {
            const float u = up[i];
            const float value = function(u);
            out[i] = u == u ? canonical(value) : float_of(0x7FC00000U);
        }
    }

    static void activate_gated(const Activation& activation, const float* gate, const float* up, std::size_t count,
                               float* out) {
        const float alpha = activation.alpha;
        const float limit = activation.limit;
        switch (activation.function) {
            case Function::silu:
                return for_pairs(gate, up, count, out, [](float g, float u) { return silu(g) * u; });
            case Function::gelu:
                return for_pairs(gate, up, count, out, [](float g, float u) { return gelu(g) * u; });
            case Function::relu:
                return for_pairs(gate, up, count, out, [](float g, float u) { return larger(g, 0.0F) * u; });
            case Function::swiglu_oai:
                return for_pairs(gate, up, count, out, [=](float g, float u) {
                    const float x = smaller(g, limit);
                    const double t = static_cast<double>(alpha) * static_cast<double>(x);
                    return over_one_plus_exponential(x, -t) * (within(u, limit) + 1.0F);
                });
            case Function::swiglu_clamp:
                return for_pairs(gate, up, count, out,
                                 [=](float g, float u) { return silu(smaller(g, limit)) * within(u, limit); });
            case Function::swiglu_limited:
                return for_pairs(gate, up, count, out,
                                 [=](float g, float u) { return smaller(silu(g), limit) * within(u, limit); });
            case Function::relu_squared:
                break;
        }
    }

    static void activate(const Activation& activation, const float* gate, const float* up, std::size_t count,
                         float* out) {
        if (gate != nullptr) return activate_gated(activation, gate, up, count, out);
        switch (activation.function) {
            case Function::silu:
                return for_each(up, count, out, [](float u) { return silu(u); });
            case Function::gelu:
                return for_each(up, count, out, [](float u) { return gelu(u); });
            case Function::relu:
                return for_each(up, count, out, [](float u) { return larger(u, 0.0F); });
            case Function::relu_squared:
                return for_each(up, count, out, [](float u) { return larger(u, 0.0F) * larger(u, 0.0F); });
            default:
                break;
        }
    }

    static void scale_and_bias(float* values, std::size_t count, const float* scale, const float* bias) {
        if (scale != nullptr) {
            const float factor = *scale;
            for (std::size_t i = 0; i < count; ++i)
                values[i] = values[i] * factor;
        }
        if (bias != nullptr) {
            for (std::size_t i = 0; i < count; ++i)
                values[i] = values[i] + bias[i];
        }
        for (std::size_t i = 0; i < count; ++i)
            values[i] = canonical(values[i]);
    }

    static void to_result(const float* row, std::size_t columns, std::byte* out) {
        for (std::size_t start = 0; start < columns; start += kResultBlock) {
            const std::size_t count = columns - start < kResultBlock ? columns - start : kResultBlock;
            std::int16_t block[1 + kResultBlock] = {32767};
            const std::uint32_t largest = largest_magnitude(row + start, count) >> 23;
            if (largest < 255) {
                const std::int32_t exponent = static_cast<std::int32_t>(largest > 15 ? largest : 15) - 141;
                const float factor = float_of(static_cast<std::uint32_t>(127 - exponent) << 23);
                block[0] = static_cast<std::int16_t>(exponent);
                for (std::size_t i = 0; i < count; ++i) {
                    std::int32_t m = nearest(row[start + i] * factor);
                    m = m < 32767 ? m : 32767;
                    block[1 + i] = static_cast<std::int16_t>(m > -32767 ? m : -32767);
                }
            }
            std::memcpy(out, block, 2 + 2 * count);
            out += 2 + 2 * count;
        }
    }

    // Of a result that was checked.
    static void from_result(const std::byte* result, std::size_t columns, float* row) {
        for (std::size_t start = 0; start < columns; start += kResultBlock) {
            const std::size_t count = columns - start < kResultBlock ? columns - start : kResultBlock;
            std::int16_t block[1 + kResultBlock];
            std::memcpy(block, result, 2 + 2 * count);
            result += 2 + 2 * count;
            const bool finite = block[0] != 32767;
            const float factor = float_of(finite ? static_cast<std::uint32_t>(block[0] + 127) << 23 : 0x7FC00000U);
            for (std::size_t i = 0; i < count; ++i)
                row[start + i] = finite ? static_cast<float>(block[1 + i]) * factor : factor;
        }
    }
};

}  // namespace kvasir::portable
