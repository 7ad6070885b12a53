#include "portable/units.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdlib>

#include "portable/random.h"

namespace kvasir::portable::test {
namespace {

// ggml's own value of every column of a row.
std::vector<float> dequantised(ggml_type type, const ByteVector& row, std::size_t columns) {
    std::vector<float> values(columns);
    if (type == GGML_TYPE_F32) {
        std::memcpy(values.data(), row.data(), row.size());
    } else {
        ggml_get_type_traits(type)->to_float(row.data(), values.data(), static_cast<std::int64_t>(columns));
    }
    return values;
}

// d·W − m·N as one f32: ggml's products are exact in f32, so it rounds no more than once either.
float column_value(const TypeTraits& known, const Unit& unit, std::size_t j) {
    double value = static_cast<double>(unit.scale) * unit.weight[j];
    if (known.minimums) value -= static_cast<double>(unit.minimum_scale) * unit.minimum[j];
    return static_cast<float>(value);
}

void expect_same(float expected, float actual, ggml_type type, std::size_t column) {
    if (std::isnan(expected) && std::isnan(actual)) return;
    // A weight of nothing has no sign in integers.
    if (expected == 0.0F && actual == 0.0F) return;
    ASSERT_EQ(std::bit_cast<std::uint32_t>(expected), std::bit_cast<std::uint32_t>(actual))
        << ggml_type_name(type) << " column " << column << ": " << expected << " and " << actual;
}

class UnitsOfType : public testing::TestWithParam<ggml_type> {};

TEST_P(UnitsOfType, AreTheColumnsOfGgml) {
    const ggml_type type = GetParam();
    const TypeTraits& known = traits(type);
    const std::size_t columns = 2048;
    Random random(7);
    Unit unit;
    for (Fill fill : {Fill::sane, Fill::anything, Fill::largest}) {
        for (int round = 0; round < 40; ++round) {
            const ByteVector row = weights(random, type, 1, columns, fill);
            const std::vector<float> expected = dequantised(type, row, columns);
            const std::size_t width = block_columns(known.form);
            for (std::size_t j = 0; j < columns; ++j) {
                if (known.form != Form::f32 && j % width == 0) decode_unit(type, row.data(), j / width, unit);
                const float actual =
                    known.form == Form::f32 ? decode_column(type, row.data(), j) : column_value(known, unit, j % width);
                expect_same(expected[j], actual, type, j);
                if (HasFatalFailure()) return;
            }
        }
    }
}

// The page's table of bounds: no sum can leave 32 bits.
TEST_P(UnitsOfType, StayWithinTheirBounds) {
    const ggml_type type = GetParam();
    const TypeTraits& known = traits(type);
    if (known.form == Form::f32) return;
    const std::size_t width = block_columns(known.form);
    Random random(8);
    Unit unit;
    for (int round = 0; round < 400; ++round) {
        const ByteVector row = weights(random, type, 1, 256, round % 2 == 0 ? Fill::anything : Fill::largest);
        decode_unit(type, row.data(), 0, unit);
        for (std::size_t j = 0; j < width; ++j) {
            ASSERT_LE(std::abs(unit.weight[j]), width == 32 ? 128 : 4096);
            ASSERT_LE(known.minimums ? std::abs(unit.minimum[j]) : 0, 63);
        }
    }
}

std::string name_of_type(const testing::TestParamInfo<ggml_type>& info) {
    return ggml_type_name(info.param);
}
INSTANTIATE_TEST_SUITE_P(All, UnitsOfType, testing::ValuesIn(all_types()), name_of_type);

TEST(Types, RefuseWhatIsNotDefined) {
    EXPECT_TRUE(check({GGML_TYPE_Q4_K, 1, 512, nullptr}).has_value());
    EXPECT_FALSE(check({GGML_TYPE_Q4_K, 1, 300, nullptr}).has_value());
    EXPECT_FALSE(check({GGML_TYPE_NVFP4, 1, 32, nullptr}).has_value());
    EXPECT_FALSE(check({GGML_TYPE_F32, 1, 0, nullptr}).has_value());
    EXPECT_FALSE(check({GGML_TYPE_F32, 1, kMaxColumns + 1, nullptr}).has_value());
    EXPECT_FALSE(check({GGML_TYPE_Q8_K, 1, 256, nullptr}).has_value());
    EXPECT_FALSE(check({GGML_TYPE_I32, 1, 256, nullptr}).has_value());
}

}  // namespace
}  // namespace kvasir::portable::test
