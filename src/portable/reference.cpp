#include "portable/reference.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "portable/numbers.h"
#include "portable/units.h"

namespace kvasir::portable::reference {
namespace {

constexpr float kNan = std::bit_cast<float>(kNanBits);

float minimum(float a, float b) {
    return a < b ? a : b;
}
float maximum(float a, float b) {
    return a > b ? a : b;
}

std::int8_t quantised(float value) {
    return static_cast<std::int8_t>(nearest(value));
}

// One block of section 2; `out` has 4 + block.size() bytes.
void quantise_block(Form form, std::span<const float> block, std::byte* out) {
    float top = 0.0F;  // the first of the largest
    bool finite = true;
    for (float x : block) {
        if (!std::isfinite(x)) finite = false;
        if (std::fabs(x) > std::fabs(top)) top = x;
    }
    std::fill_n(out, 4 + block.size(), std::byte{0});
    if (!finite) return store(out, kNan);
    if (std::fabs(top) < 0x1p-100F) return;
    const bool wide = form == Form::q8x256;
    const float narrow_scale = std::fabs(top) / 127.0F;
    const float factor = wide ? -127.0F / top : 1.0F / narrow_scale;
    store(out, wide ? 1.0F / factor : narrow_scale);
    for (std::size_t i = 0; i < block.size(); ++i)
        store(out + 4 + i, quantised(block[i] * factor));
}

float fold(const std::array<float, 8>& lanes) {
    const float even = (lanes[0] + lanes[4]) + (lanes[2] + lanes[6]);
    const float odd = (lanes[1] + lanes[5]) + (lanes[3] + lanes[7]);
    return canonical(even + odd);
}

std::int32_t dot(std::span<const std::int16_t> weights, const std::byte* quantised_columns) {
    std::int32_t sum = 0;
    for (std::size_t j = 0; j < weights.size(); ++j)
        sum += weights[j] * std::max<std::int32_t>(load<std::int8_t>(quantised_columns + j), -127);
    return sum;
}

float integer_product(const Matrix& matrix, const std::byte* weights, const std::byte* row) {
    const TypeTraits& known = traits(matrix.type);
    const std::size_t columns = block_columns(known.form);
    std::array<float, 8> lanes{};
    Unit unit;
    for (std::size_t u = 0; u < matrix.columns / columns; ++u) {
        decode_unit(matrix.type, weights, u, unit);
        const std::byte* block = row + u * block_bytes(known.form);
        const auto row_scale = load<float>(block);
        const std::int32_t sum = dot(std::span(unit.weight).first(columns), block + 4);
        float term = static_cast<float>(sum) * (unit.scale * row_scale);
        if (known.minimums) {
            const std::int32_t minimums = dot(std::span(unit.minimum).first(columns), block + 4);
            term = term - static_cast<float>(minimums) * (unit.minimum_scale * row_scale);
        }
        lanes[u % 8] = lanes[u % 8] + term;
    }
    return fold(lanes);
}

float float_product(const Matrix& matrix, const std::byte* weights, const std::byte* row) {
    std::array<float, 8> lanes{};
    for (std::size_t j = 0; j < matrix.columns; ++j) {
        const float product = decode_column(matrix.type, weights, j) * load<float>(row + 4 * j);
        lanes[j % 8] = lanes[j % 8] + product;
    }
    return fold(lanes);
}

// g ÷ (1 + E(t)), rounded once.
float over_one_plus_exponential(float g, double t) {
    return static_cast<float>(static_cast<double>(g) / (1.0 + exponential(t)));
}

float gated(const Activation& activation, float g, float u) {
    const float limit = activation.limit;
    switch (activation.function) {
        case Function::silu:
            return silu(g) * u;
        case Function::gelu:
            return gelu(g) * u;
        case Function::relu:
            return maximum(g, 0.0F) * u;
        case Function::swiglu_oai: {
            const float x = minimum(g, limit);
            const float y = maximum(minimum(u, limit), -limit);
            const double t = static_cast<double>(activation.alpha) * static_cast<double>(x);
            return over_one_plus_exponential(x, -t) * (y + 1.0F);
        }
        case Function::swiglu_clamp:
            return silu(minimum(g, limit)) * maximum(minimum(u, limit), -limit);
        case Function::swiglu_limited:
            return minimum(silu(g), limit) * maximum(minimum(u, limit), -limit);
        case Function::relu_squared:
            break;
    }
    return kNan;
}

float ungated(const Activation& activation, float u) {
    const float positive = maximum(u, 0.0F);
    switch (activation.function) {
        case Function::silu:
            return silu(u);
        case Function::gelu:
            return gelu(u);
        case Function::relu:
            return positive;
        case Function::relu_squared:
            return positive * positive;
        default:
            return kNan;
    }
}

}  // namespace

void quantise(Form form, std::span<const float> row, std::span<std::byte> out) {
    if (form == Form::f32) {
        std::memcpy(out.data(), row.data(), row.size_bytes());
        return;
    }
    const std::size_t columns = block_columns(form);
    for (std::size_t block = 0; block < row.size() / columns; ++block)
        quantise_block(form, row.subspan(block * columns, columns), out.data() + block * block_bytes(form));
}

void multiply(const Matrix& matrix, std::span<const std::byte> row, std::span<float> out) {
    const std::size_t bytes = weight_row_bytes(matrix.type, matrix.columns);
    const bool integers = traits(matrix.type).form != Form::f32;
    for (std::size_t i = 0; i < matrix.rows; ++i) {
        const std::byte* weights = matrix.data + i * bytes;
        out[i] = integers ? integer_product(matrix, weights, row.data()) : float_product(matrix, weights, row.data());
    }
}

double exponential(double t) {
    t = t > -200.0 ? t : -200.0;
    t = t < 200.0 ? t : 200.0;
    constexpr double kLog2E = 0x1.71547652b82fep+0;
    constexpr double kLn2 = 0x1.62e42fefa39efp-1;
    const double n = std::nearbyint(t * kLog2E);
    const double r = t - n * kLn2;
    double factorial = 40320.0;  // 8!
    double p = 1.0 / factorial;
    for (int k = 7; k >= 0; --k) {
        factorial /= k + 1;
        p = p * r + 1.0 / factorial;
    }
    return std::ldexp(p, static_cast<int>(n));
}

float silu(float x) {
    return over_one_plus_exponential(x, -static_cast<double>(x));
}

float gelu(float x) {
    constexpr double kTwoSqrt2OverPi = 0x1.9884533d43651p+0;
    constexpr double kCubic = 0x1.6e4e26d4801f7p-5;
    const double g = x;
    return over_one_plus_exponential(x, -(kTwoSqrt2OverPi * (g + (kCubic * g) * (g * g))));
}

void activate(const Activation& activation, std::span<const float> gate, std::span<const float> up,
              std::span<float> out) {
    for (std::size_t i = 0; i < up.size(); ++i) {
        const bool nan = std::isnan(up[i]) || (!gate.empty() && std::isnan(gate[i]));
        const float value = gate.empty() ? ungated(activation, up[i]) : gated(activation, gate[i], up[i]);
        out[i] = nan ? kNan : canonical(value);
    }
}

void scale_and_bias(std::span<float> values, const float* scale, std::span<const float> bias) {
    for (std::size_t i = 0; i < values.size(); ++i) {
        if (scale != nullptr) values[i] = values[i] * *scale;
        if (!bias.empty()) values[i] = values[i] + bias[i];
        values[i] = canonical(values[i]);
    }
}

void to_result(std::span<const float> row, std::span<std::byte> out) {
    std::byte* next = out.data();
    for (std::size_t start = 0; start < row.size(); start += kResultBlock) {
        const std::span<const float> block = row.subspan(start, std::min(kResultBlock, row.size() - start));
        int largest = 15;  // exponent field
        for (float y : block)
            largest = std::max(largest, static_cast<int>((std::bit_cast<std::uint32_t>(y) >> 23) & 255));
        const bool finite = largest < 255;
        const int exponent = largest - 141;
        store(next, static_cast<std::int16_t>(finite ? exponent : std::numeric_limits<std::int16_t>::max()));
        next += 2;
        for (float y : block) {
            const std::int32_t mantissa = finite ? nearest(y * power_of_two(-exponent)) : 0;
            store(next, static_cast<std::int16_t>(std::clamp(mantissa, -32767, 32767)));
            next += 2;
        }
    }
}

Status from_result(std::span<const std::byte> result, std::span<float> row) {
    if (result.size() != result_bytes(row.size()))
        return fail(ErrorKind::invalid, "result row: {} bytes for {} columns", result.size(), row.size());
    const std::byte* next = result.data();
    for (std::size_t start = 0; start < row.size(); start += kResultBlock) {
        const int exponent = load<std::int16_t>(next);
        next += 2;
        const bool finite = exponent != std::numeric_limits<std::int16_t>::max();
        if (finite && (exponent < -126 || exponent > 113))
            return fail(ErrorKind::invalid, "result row: exponent {} at column {}", exponent, start);
        for (std::size_t i = start; i < std::min(start + kResultBlock, row.size()); ++i) {
            const int mantissa = load<std::int16_t>(next);
            next += 2;
            if (finite ? mantissa == -32768 : mantissa != 0)
                return fail(ErrorKind::invalid, "result row: mantissa {} at column {}", mantissa, i);
            row[i] = finite ? static_cast<float>(mantissa) * power_of_two(exponent) : kNan;
        }
    }
    return {};
}

}  // namespace kvasir::portable::reference
