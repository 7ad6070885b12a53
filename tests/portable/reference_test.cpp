#include "portable/reference.h"

#include <ggml-quants.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "portable/numbers.h"
#include "portable/random.h"
#include "portable/units.h"

namespace kvasir::portable::test {
namespace {

ByteVector quantised(Form form, std::span<const float> row) {
    ByteVector bytes(row_bytes(form, row.size()));
    reference::quantise(form, row, bytes);
    return bytes;
}

// ---- activation rows

TEST(Quantise, WideBlocksAreThoseOfGgml) {
    Random random(1);
    for (int round = 0; round < 300; ++round) {
        const std::vector<float> row =
            normal_row(random, 256, std::ldexp(1.0F, static_cast<int>(random.below(200)) - 90));
        block_q8_K expected;
        quantize_row_q8_K_ref(row.data(), &expected, 256);
        const ByteVector actual = quantised(Form::q8x256, row);
        ASSERT_EQ(load<float>(actual.data()), expected.d);
        ASSERT_EQ(std::memcmp(actual.data() + 4, expected.qs, 256), 0);
    }
}

// Normal numbers do not meet exact ties, the only place where the reference quantiser rounds otherwise.
TEST(Quantise, NarrowBlocksHaveTheIntegersOfGgml) {
    Random random(2);
    for (int round = 0; round < 2000; ++round) {
        const std::vector<float> row = normal_row(random, 32, 3.0F);
        block_q8_0 expected;
        quantize_row_q8_0_ref(row.data(), &expected, 32);
        const ByteVector actual = quantised(Form::q8x32, row);
        ASSERT_EQ(std::memcmp(actual.data() + 4, expected.qs, 32), 0);
        ASSERT_NEAR(load<float>(actual.data()), from_half(expected.d), std::ldexp(load<float>(actual.data()), -11));
    }
}

TEST(Quantise, AnyFiniteRowIsWithinHalfAStep) {
    Random random(3);
    for (Form form : {Form::q8x256, Form::q8x32}) {
        for (int round = 0; round < 400; ++round) {
            std::vector<float> row(256);
            for (float& x : row) {
                do {
                    x = random.any_float();
                } while (!std::isfinite(x));
            }
            const ByteVector bytes = quantised(form, row);
            for (std::size_t i = 0; i < row.size(); ++i) {
                const std::byte* block = bytes.data() + i / block_columns(form) * block_bytes(form);
                const double scale = load<float>(block);
                const int q = load<std::int8_t>(block + 4 + i % block_columns(form));
                ASSERT_NE(q, -128);
                ASSERT_LE(std::fabs(q * scale - row[i]), std::fabs(scale) * 0.50002) << row[i];
            }
        }
    }
}

TEST(Quantise, ANanOrAnInfinityMakesItsBlockNan) {
    for (Form form : {Form::q8x256, Form::q8x32}) {
        for (float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                          std::bit_cast<float>(0xFF812345U)}) {
            std::vector<float> row(512, 1.0F);
            row[0] = bad;
            const ByteVector bytes = quantised(form, row);
            EXPECT_EQ(load<std::uint32_t>(bytes.data()), kNanBits);
            EXPECT_EQ(load<std::int8_t>(bytes.data() + 5), 0);
            EXPECT_TRUE(std::isfinite(load<float>(bytes.data() + block_bytes(form))));
        }
    }
}

// ---- products

// The same integers and scales in f64, and the sum of the terms' magnitudes.
struct Exact {
    double product = 0.0;
    double magnitude = 0.0;
    std::size_t terms = 0;
};

Exact exact_product(ggml_type type, const std::byte* weights_row, const std::byte* row, std::size_t columns) {
    const TypeTraits& known = traits(type);
    const std::size_t width = block_columns(known.form);
    Exact exact;
    Unit unit;
    for (std::size_t j = 0; j < columns; ++j) {
        const std::byte* block = row + j / width * block_bytes(known.form);
        double term = 0.0;
        double size = 0.0;
        if (known.form == Form::f32) {
            term = static_cast<double>(decode_column(type, weights_row, j)) * static_cast<double>(load<float>(block));
            size = std::fabs(term);
        } else {
            if (j % width == 0) decode_unit(type, weights_row, j / width, unit);
            const double x = static_cast<double>(load<float>(block)) * load<std::int8_t>(block + 4 + j % width);
            const double weight = static_cast<double>(unit.scale) * unit.weight[j % width];
            const double minimum =
                known.minimums ? static_cast<double>(unit.minimum_scale) * unit.minimum[j % width] : 0.0;
            term = (weight - minimum) * x;
            size = (std::fabs(weight) + std::fabs(minimum)) * std::fabs(x);
        }
        exact.product += term;
        exact.magnitude += size;
    }
    exact.terms = columns / width;
    return exact;
}

TEST(Multiply, IsWithinItsBoundOfF64) {
    Random random(4);
    for (ggml_type type : all_types()) {
        for (std::size_t columns : {256UL, 1536UL, 3072UL}) {
            const Form form = traits(type).form;
            const ByteVector bytes = weights(random, type, 8, columns, Fill::sane);
            const ByteVector row = quantised(form, normal_row(random, columns));
            std::vector<float> out(8);
            reference::multiply({type, 8, columns, bytes.data()}, row, out);
            for (std::size_t i = 0; i < out.size(); ++i) {
                const Exact exact =
                    exact_product(type, bytes.data() + i * weight_row_bytes(type, columns), row.data(), columns);
                const double roundings = static_cast<double>(exact.terms) / 8.0 + 8.0;
                EXPECT_LE(std::fabs(out[i] - exact.product), roundings * 0x1p-24 * exact.magnitude)
                    << ggml_type_name(type);
            }
        }
    }
}

TEST(Multiply, ANanInTheRowMakesEveryOutputTheOneNan) {
    Random random(5);
    for (ggml_type type : all_types()) {
        std::vector<float> row = normal_row(random, 512);
        row[300] = std::bit_cast<float>(0xFFABCDEFU);
        const ByteVector bytes = weights(random, type, 3, 512, Fill::sane);
        std::vector<float> out(3);
        reference::multiply({type, 3, 512, bytes.data()}, quantised(traits(type).form, row), out);
        for (float y : out)
            EXPECT_EQ(std::bit_cast<std::uint32_t>(y), kNanBits) << ggml_type_name(type);
    }
}

// ---- functions

// |value − exact| in units of the last place of an f32 near `exact`.
double error_in_ulps(float value, long double exact) {
    const auto nearest_float = static_cast<float>(exact);
    if (std::isinf(nearest_float)) return value == nearest_float ? 0.0 : 1e9;
    const int exponent = std::max(std::ilogb(nearest_float == 0.0F ? 0x1p-149F : nearest_float), -126) - 23;
    return static_cast<double>(std::fabs(static_cast<long double>(value) - exact) / std::ldexp(1.0L, exponent));
}

constexpr long double kSqrt2OverPi = 0.797884560802865355879892119868763737L;

long double exact_silu(long double x) {
    return x / (1.0L + std::exp(-x));
}
long double exact_gelu(long double x) {
    return x / (1.0L + std::exp(-2.0L * kSqrt2OverPi * (x + 0.044715L * x * x * x)));
}

// Every f32 of a stride coprime to all powers of two: all exponents, both signs, all kinds of fractions.
template <class Visit>
void for_many_floats(std::uint32_t stride, Visit visit) {
    std::uint32_t bits = 0;
    do {
        const auto x = std::bit_cast<float>(bits);
        if (std::isfinite(x)) visit(x);
        const std::uint32_t next = bits + stride;
        if (next < bits) return;
        bits = next;
    } while (true);
}

TEST(Functions, AreWithinTheirBoundOverAllExponents) {
    double silu_error = 0.0;
    double gelu_error = 0.0;
    for_many_floats(4099, [&](float x) {
        silu_error = std::max(silu_error, error_in_ulps(reference::silu(x), exact_silu(x)));
        gelu_error = std::max(gelu_error, error_in_ulps(reference::gelu(x), exact_gelu(x)));
    });
    EXPECT_LE(silu_error, 0.51);
    EXPECT_LE(gelu_error, 0.52);
}

TEST(Functions, TheExponentialIsWithinItsBound) {
    long double worst = 0.0L;
    for (int i = -2'000'000; i <= 2'000'000; ++i) {
        const double t = i * 1.0000123e-4;
        if (std::fabs(t) > 200.0) continue;
        const long double exact = std::exp(static_cast<long double>(t));
        worst = std::max(worst, std::fabs(reference::exponential(t) / exact - 1.0L));
    }
    EXPECT_LE(worst, 0x1p-31L);
}

float activated(const Activation& activation, float gate, float up) {
    float out = 0.0F;
    reference::activate(activation, std::span(&gate, 1), std::span(&up, 1), std::span(&out, 1));
    return out;
}

TEST(Functions, ClampWhereTheirRecipesSay) {
    EXPECT_EQ(activated({Function::swiglu_oai, 1.702F, 7.0F}, 100.0F, -100.0F),
              activated({Function::swiglu_oai, 1.702F, 7.0F}, 7.0F, -7.0F));
    EXPECT_EQ(activated({Function::swiglu_clamp, 0.0F, 3.0F}, 100.0F, 100.0F), reference::silu(3.0F) * 3.0F);
    EXPECT_EQ(activated({Function::swiglu_limited, 0.0F, 3.0F}, 100.0F, 100.0F), 9.0F);
    EXPECT_EQ(activated({Function::relu}, -1.0F, 5.0F), 0.0F);
    EXPECT_EQ(activated({Function::relu}, 2.0F, 5.0F), 10.0F);
}

TEST(Functions, LetNoNanThroughAsANumber) {
    const float nan = std::bit_cast<float>(0xFFC12345U);
    for (int f = 0; f <= 6; ++f) {
        const Activation activation{static_cast<Function>(f), 1.702F, 7.0F};
        if (activation.function == Function::relu_squared) continue;
        EXPECT_EQ(std::bit_cast<std::uint32_t>(activated(activation, nan, 1.0F)), kNanBits) << f;
        EXPECT_EQ(std::bit_cast<std::uint32_t>(activated(activation, 1.0F, nan)), kNanBits) << f;
    }
}

// ---- result rows

TEST(Result, KeepsItsErrorBoundAndNeverOverflows) {
    Random random(6);
    for (int round = 0; round < 2000; ++round) {
        std::vector<float> row =
            normal_row(random, 1 + random.below(600), std::ldexp(1.0F, static_cast<int>(random.below(270)) - 145));
        if (round % 10 == 0) row[0] = std::numeric_limits<float>::max();
        ByteVector bytes(result_bytes(row.size()));
        reference::to_result(row, bytes);
        std::vector<float> read(row.size());
        ASSERT_TRUE(reference::from_result(bytes, read).has_value());
        for (std::size_t start = 0; start < row.size(); start += kResultBlock) {
            const std::size_t end = std::min(row.size(), start + kResultBlock);
            float top = 0.0F;
            for (std::size_t i = start; i < end; ++i)
                top = std::max(top, std::fabs(row[i]));
            for (std::size_t i = start; i < end; ++i) {
                ASSERT_TRUE(std::isfinite(read[i]));
                ASSERT_LE(std::fabs(read[i] - row[i]), std::max(std::ldexp(top, -15), 0x1p-127F));
            }
        }
    }
}

// Reading and rounding again changes nothing: a result row may be handed on.
TEST(Result, RoundsToItself) {
    Random random(9);
    const std::vector<float> row = normal_row(random, 700, 3.0F);
    ByteVector bytes(result_bytes(row.size()));
    reference::to_result(row, bytes);
    std::vector<float> read(row.size());
    ASSERT_TRUE(reference::from_result(bytes, read).has_value());
    ByteVector again(bytes.size());
    reference::to_result(read, again);
    EXPECT_EQ(bytes, again);
}

TEST(Result, RefusesWhatIsNeverWritten) {
    std::vector<float> row(4, 1.0F);
    ByteVector bytes(result_bytes(row.size()));
    reference::to_result(row, bytes);
    const auto with = [&](std::size_t at, std::int16_t value) {
        ByteVector changed = bytes;
        store(changed.data() + at, value);
        return reference::from_result(changed, row).has_value();
    };
    EXPECT_TRUE(with(0, 113));
    EXPECT_FALSE(with(0, 114));
    EXPECT_TRUE(with(0, -126));
    EXPECT_FALSE(with(0, -127));
    EXPECT_FALSE(with(0, 32767));  // with mantissas
    EXPECT_TRUE(with(4, -32767));
    EXPECT_FALSE(with(4, -32768));
}

}  // namespace
}  // namespace kvasir::portable::test
