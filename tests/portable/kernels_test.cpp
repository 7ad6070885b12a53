#include "portable/kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>

#include "portable/hard_rows.h"
#include "portable/numbers.h"
#include "portable/random.h"
#include "portable/reference.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace kvasir::portable::test {
namespace {

#if defined(__x86_64__)
constexpr std::uint64_t kFlushAndRoundToZero = 0x8040U | 0x6000U;
std::uint64_t modes() {
    return _mm_getcsr();
}
void set_modes(std::uint64_t modes) {
    _mm_setcsr(static_cast<unsigned>(modes));
}
#elif defined(__aarch64__)
constexpr std::uint64_t kFlushAndRoundToZero = 1U << 24 | 3U << 22;
std::uint64_t modes() {
    std::uint64_t fpcr = 0;
    asm volatile("mrs %0, fpcr" : "=r"(fpcr));
    return fpcr;
}
void set_modes(std::uint64_t modes) {
    asm volatile("msr fpcr, %0" : : "r"(modes) : "memory");
}
#endif

struct Case {
    Isa isa;
    ggml_type type;
};

class KernelOf : public testing::TestWithParam<Case> {
  protected:
    Kernels kernels_{GetParam().isa};
    ggml_type type_ = GetParam().type;
};

std::vector<float> by_reference(const Matrix& matrix, const ByteVector& rows, std::size_t count) {
    const std::size_t bytes = rows.size() / count;
    std::vector<float> out(count * matrix.rows);
    for (std::size_t row = 0; row < count; ++row) {
        reference::multiply(matrix, std::span(rows).subspan(row * bytes, bytes),
                            std::span(out).subspan(row * matrix.rows, matrix.rows));
    }
    return out;
}

void expect_same_bits(std::span<const float> expected, std::span<const float> actual) {
    ASSERT_EQ(expected.size(), actual.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
        ASSERT_EQ(std::bit_cast<std::uint32_t>(expected[i]), std::bit_cast<std::uint32_t>(actual[i]))
            << "output " << i << ": " << expected[i] << " and " << actual[i];
    }
}

TEST_P(KernelOf, MultipliesAsTheReference) {
    Random random(11);
    const Form form = traits(type_).form;
    for (std::size_t columns : lengths(type_)) {
        for (Fill fill : {Fill::sane, Fill::anything, Fill::largest}) {
            for (std::size_t count : {1U, 2U, 5U}) {
                const std::size_t outputs = 16 + random.below(20);
                const ByteVector bytes = weights(random, type_, outputs, columns, fill);
                const Matrix matrix{type_, outputs, columns, bytes.data()};
                const ByteVector rows = hard_rows(random, form, columns, count);
                std::vector<float> actual(count * outputs, 1.0F);
                const PreparedRows prepared(form, columns, count, rows.data());
                kernels_.multiply(matrix, prepared, 0, outputs, actual.data(), outputs);
                expect_same_bits(by_reference(matrix, rows, count), actual);
                if (HasFatalFailure()) FAIL() << columns << " columns, fill " << static_cast<int>(fill);
            }
        }
    }
}

// One row, as where a token is decoded: of every number of units up to twice what kernels take at once, and of more
// than they keep at a time.
TEST_P(KernelOf, MultipliesOneRowOfAnyLength) {
    Random random(21);
    const Form form = traits(type_).form;
    const std::size_t step = std::max(traits(type_).stored_columns, block_columns(form));
    std::vector<std::size_t> units = {64, 65, 519, 1030};
    for (std::size_t count = 1; count <= 17; ++count)
        units.push_back(count);
    for (std::size_t count : units) {
        const std::size_t outputs = 16 + random.below(4);
        const ByteVector bytes = weights(random, type_, outputs, count * step, Fill::sane);
        const Matrix matrix{type_, outputs, count * step, bytes.data()};
        const ByteVector rows = hard_rows(random, form, count * step, 1);
        std::vector<float> actual(outputs, 1.0F);
        const PreparedRows prepared(form, count * step, 1, rows.data());
        kernels_.multiply(matrix, prepared, 0, outputs, actual.data(), outputs);
        expect_same_bits(by_reference(matrix, rows, 1), actual);
        if (HasFatalFailure()) FAIL() << count << " times " << step << " columns";
    }
}

// Every split of the outputs, every number of rows: the same bits.
TEST_P(KernelOf, DoesNotDependOnHowTheWorkIsCut) {
    Random random(12);
    const Form form = traits(type_).form;
    const std::size_t columns = traits(type_).form == Form::q8x256 ? 512 : 192;
    const std::size_t outputs = 83;
    const std::size_t count = 70;
    const ByteVector bytes = weights(random, type_, outputs, columns, Fill::sane);
    const Matrix matrix{type_, outputs, columns, bytes.data()};
    const ByteVector rows = hard_rows(random, form, columns, count);
    const PreparedRows all(form, columns, count, rows.data());
    std::vector<float> expected(count * outputs);
    kernels_.multiply(matrix, all, 0, outputs, expected.data(), outputs);

    std::vector<float> actual(expected.size());
    for (std::size_t begin = 0; begin < outputs;) {
        const std::size_t end = std::min(outputs, begin + 1 + random.below(40));
        kernels_.multiply(matrix, all, begin, end, actual.data(), outputs);
        begin = end;
    }
    expect_same_bits(expected, actual);

    const std::size_t bytes_of_row = row_bytes(form, columns);
    for (std::size_t row = 0; row < count;) {
        const std::size_t some = std::min(count - row, 1 + random.below(9));
        const PreparedRows part(form, columns, some, rows.data() + row * bytes_of_row);
        kernels_.multiply(matrix, part, 0, outputs, actual.data() + row * outputs, outputs);
        row += some;
    }
    expect_same_bits(expected, actual);
}

std::vector<Case> all_cases() {
    std::vector<Case> cases;
    for (Isa isa : supported_isas()) {
        for (ggml_type type : all_types())
            cases.push_back({isa, type});
    }
    return cases;
}
std::string name_of_case(const testing::TestParamInfo<Case>& info) {
    return std::string(name_of(info.param.isa)) + "_" + ggml_type_name(info.param.type);
}
INSTANTIATE_TEST_SUITE_P(All, KernelOf, testing::ValuesIn(all_cases()), name_of_case);

class RowsOf : public testing::TestWithParam<Isa> {
  protected:
    Kernels kernels_{GetParam()};
};

void expect_same_blocks(const RowsView& expected, const RowsView& actual) {
    ASSERT_EQ(expected.units(), actual.units());
    for (std::size_t row = 0; row < expected.count(); ++row) {
        for (std::size_t unit = 0; unit < expected.units(); ++unit) {
            if (expected.form() == Form::q8x256) {
                ASSERT_EQ(std::memcmp(&expected.wide(row)[unit], &actual.wide(row)[unit],
                                      offsetof(Wide, scale) + sizeof(float)),
                          0);
            } else if (expected.form() == Form::q8x32) {
                ASSERT_EQ(std::memcmp(&expected.narrow(row)[unit], &actual.narrow(row)[unit],
                                      offsetof(Narrow, scale) + sizeof(float)),
                          0);
            } else {
                ASSERT_EQ(std::memcmp(&expected.floats(row)[unit], &actual.floats(row)[unit], sizeof(float)), 0);
            }
        }
    }
}

// In memory that held other rows before.
TEST_P(RowsOf, PrepareFromBytesAndFromNumbersAlike) {
    Random random(22);
    PreparedRows read;
    PreparedRows prepared;
    for (std::size_t columns : {768U, 256U, 1024U}) {
        for (Form form : {Form::q8x256, Form::f32, Form::q8x32}) {
            const std::size_t size = row_bytes(form, columns);
            const ByteVector bytes = hard_rows(random, form, columns, 9);
            read.resize(form, columns, 9);
            for (std::size_t row = 0; row < 9; ++row)
                kernels_.read(std::span(bytes).subspan(row * size, size), read, row);
            expect_same_blocks(PreparedRows(form, columns, 9, bytes.data()), read);

            prepared.resize(form, columns, 16);
            ByteVector quantised(16 * size);
            for (std::uint64_t kind = 0; kind < 16; ++kind) {
                const std::vector<float> row = hard_row(random, columns, kind);
                reference::quantise(form, row, std::span(quantised).subspan(kind * size, size));
                kernels_.prepare(row, prepared, kind);
            }
            expect_same_blocks(PreparedRows(form, columns, 16, quantised.data()), prepared);
            expect_same_blocks(PreparedRows(form, columns, 3, quantised.data() + 5 * size), prepared.view(5, 3));
        }
    }
}

TEST_P(RowsOf, QuantiseAsTheReference) {
    Random random(13);
    for (Form form : {Form::f32, Form::q8x256, Form::q8x32}) {
        for (std::uint64_t kind = 0; kind < 400; ++kind) {
            const std::vector<float> row = hard_row(random, 512, kind);
            ByteVector expected(row_bytes(form, row.size()));
            ByteVector actual(expected.size());
            reference::quantise(form, row, expected);
            kernels_.quantise(form, row, actual);
            ASSERT_EQ(expected, actual) << "kind " << kind % 8;
        }
    }
}

TEST_P(RowsOf, RoundResultsAsTheReference) {
    Random random(14);
    for (std::uint64_t kind = 0; kind < 400; ++kind) {
        const std::vector<float> row = hard_row(random, 1 + random.below(700), kind);
        ByteVector expected(result_bytes(row.size()));
        ByteVector actual(expected.size());
        reference::to_result(row, expected);
        kernels_.to_result(row, actual);
        ASSERT_EQ(expected, actual) << "kind " << kind % 8;

        std::vector<float> expected_row(row.size());
        std::vector<float> actual_row(row.size());
        ASSERT_TRUE(reference::from_result(expected, expected_row).has_value());
        ASSERT_TRUE(kernels_.from_result(expected, actual_row).has_value());
        expect_same_bits(expected_row, actual_row);

        // Any bytes are read alike or refused alike.
        for (std::byte& byte : actual)
            byte = static_cast<std::byte>(random.bits() & 255);
        store(actual.data(), static_cast<std::int16_t>(random.below(300)) - 150);
        const bool valid = reference::from_result(actual, expected_row).has_value();
        ASSERT_EQ(kernels_.from_result(actual, actual_row).has_value(), valid);
        if (valid) expect_same_bits(expected_row, actual_row);
    }
}

TEST_P(RowsOf, ActivateAsTheReference) {
    Random random(15);
    for (const auto& [activation, gated] : function_cases()) {
        for (int round = 0; round < 200; ++round) {
            const std::size_t count = 1 + random.below(300);
            std::vector<float> gate = normal_row(random, count, round % 2 == 0 ? 4.0F : 60.0F);
            std::vector<float> up = normal_row(random, count, 4.0F);
            for (std::size_t i = 0; i < count; i += 3) {
                gate[i] = random.any_float();
                up[(i * 7) % count] = random.any_float();
            }
            std::vector<float> expected(count);
            std::vector<float> actual(count);
            const std::span<const float> gates = gated ? std::span<const float>(gate) : std::span<const float>();
            reference::activate(activation, gates, up, expected);
            kernels_.activate(activation, gates, up, actual);
            expect_same_bits(expected, actual);
            if (HasFatalFailure())
                FAIL() << "function " << static_cast<int>(activation.function) << (gated ? ", gated" : "");
        }
    }
}

TEST_P(RowsOf, ScaleAndBiasAsTheReference) {
    Random random(16);
    const float scale = 0.3F;
    for (int round = 0; round < 100; ++round) {
        std::vector<float> expected = hard_row(random, 1 + random.below(300), static_cast<std::uint64_t>(round));
        std::vector<float> actual = expected;
        std::vector<float> bias = normal_row(random, expected.size());
        bias[0] = std::bit_cast<float>(0xFFC54321U);
        const std::span<const float> biases = round % 3 == 0 ? std::span<const float>() : bias;
        const float* scales = round % 2 == 0 ? nullptr : &scale;
        reference::scale_and_bias(expected, scales, biases);
        kernels_.scale_and_bias(actual, scales, biases);
        expect_same_bits(expected, actual);
    }
}

#if defined(__x86_64__) || defined(__aarch64__)
// A caller's modes (some libraries flush denormals for the whole process) neither change a bit nor are changed.
TEST_P(RowsOf, IgnoreTheCallersModes) {
    Random random(17);
    const std::vector<float> row = hard_row(random, 512, 1);
    ByteVector expected(result_bytes(row.size()));
    reference::to_result(row, expected);
    const std::uint64_t before = modes();
    const std::uint64_t flushing = before | kFlushAndRoundToZero;
    set_modes(flushing);
    ByteVector actual(expected.size());
    kernels_.to_result(row, actual);
    const std::uint64_t after = modes();
    set_modes(before);
    EXPECT_EQ(expected, actual);
    EXPECT_EQ(after, flushing);
}
#endif

std::string name_of_isa(const testing::TestParamInfo<Isa>& info) {
    return std::string(name_of(info.param));
}
INSTANTIATE_TEST_SUITE_P(All, RowsOf, testing::ValuesIn(supported_isas()), name_of_isa);

TEST(Kernels, TakeTheFastest) {
    EXPECT_EQ(Kernels().isa(), supported_isas().back());
    EXPECT_EQ(supported_isas().front(), Isa::plain);
}

}  // namespace
}  // namespace kvasir::portable::test
