#include "expert/row_encoding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "portable/reference.h"

namespace kvasir {
namespace {

namespace reference = portable::reference;
using testing::HasSubstr;

// Numbers of all magnitudes, and some that are none.
std::vector<float> wild_numbers(std::size_t count, std::uint32_t seed) {
    std::mt19937 random(seed);
    std::vector<float> numbers(count);
    for (float& number : numbers) {
        const auto exponent = static_cast<int>(random() % 40) - 20;
        number = std::ldexp(static_cast<float>(static_cast<std::int32_t>(random())), exponent - 31);
    }
    if (count > 600) {
        numbers[300] = std::numeric_limits<float>::quiet_NaN();
        numbers[600] = -std::numeric_limits<float>::infinity();
    }
    return numbers;
}

TEST(RowEncoding, SizesAreThoseOfTheArithmetic) {
    for (std::size_t columns : {1, 31, 32, 64, 255, 256, 257, 1408, 2048, 2880, 3072}) {
        EXPECT_EQ(row_bytes(RowEncoding::f32, columns), portable::row_bytes(portable::Form::f32, columns));
        EXPECT_EQ(row_bytes(RowEncoding::q8x256, columns),
                  columns % 256 == 0 ? portable::row_bytes(portable::Form::q8x256, columns) : 0);
        EXPECT_EQ(row_bytes(RowEncoding::q8x32, columns),
                  columns % 32 == 0 ? portable::row_bytes(portable::Form::q8x32, columns) : 0);
        EXPECT_EQ(row_bytes(RowEncoding::i16x256, columns), portable::result_bytes(columns));
    }
    EXPECT_EQ(row_bytes(RowEncoding::i16x256, 3072), 6168);
}

TEST(RowEncoding, ActivationsAreQuantisedAsTheReferenceDoes) {
    constexpr std::size_t kColumns = 512;
    const std::vector<float> rows = wild_numbers(5 * kColumns, 1);
    for (auto [encoding, form] :
         {std::pair(RowEncoding::f32, portable::Form::f32), std::pair(RowEncoding::q8x256, portable::Form::q8x256),
          std::pair(RowEncoding::q8x32, portable::Form::q8x32)}) {
        const std::size_t size = row_bytes(encoding, kColumns);
        ByteVector encoded(5 * size);
        encode_rows(encoding, kColumns, rows, encoded);
        ByteVector expected(5 * size);
        for (std::size_t row = 0; row < 5; ++row) {
            reference::quantise(form, std::span(rows).subspan(row * kColumns, kColumns),
                                std::span(expected).subspan(row * size, size));
        }
        EXPECT_EQ(encoded, expected) << static_cast<int>(encoding);
    }
}

TEST(RowEncoding, FloatsTravelBitForBit) {
    std::vector<float> rows = wild_numbers(7 * 101, 2);
    rows[3] = std::bit_cast<float>(0xFFC12345U);  // a NaN's bits too
    rows[4] = -0.0F;
    ByteVector encoded(rows.size() * sizeof(float));
    encode_rows(RowEncoding::f32, 101, rows, encoded);
    std::vector<float> decoded(rows.size());
    ASSERT_TRUE(decode_results(RowEncoding::f32, 101, encoded, decoded));
    EXPECT_EQ(std::memcmp(decoded.data(), rows.data(), encoded.size()), 0);
}

TEST(RowEncoding, ResultsTravelAsTheReferenceRoundsThem) {
    for (std::size_t columns : {1, 24, 256, 700}) {
        const std::vector<float> rows = wild_numbers(4 * columns, 3);
        const std::size_t size = row_bytes(RowEncoding::i16x256, columns);
        ByteVector encoded(4 * size);
        encode_rows(RowEncoding::i16x256, columns, rows, encoded);
        std::vector<float> decoded(rows.size());
        ASSERT_TRUE(decode_results(RowEncoding::i16x256, columns, encoded, decoded));
        for (std::size_t row = 0; row < 4; ++row) {
            ByteVector expected(size);
            reference::to_result(std::span(rows).subspan(row * columns, columns), expected);
            EXPECT_TRUE(std::ranges::equal(std::span(encoded).subspan(row * size, size), expected));
            std::vector<float> numbers(columns);
            ASSERT_TRUE(reference::from_result(expected, numbers));
            EXPECT_EQ(std::memcmp(decoded.data() + row * columns, numbers.data(), columns * sizeof(float)), 0);
        }
        // What was read is written again.
        ByteVector again(encoded.size());
        encode_rows(RowEncoding::i16x256, columns, decoded, again);
        EXPECT_EQ(again, encoded);
    }
}

TEST(RowEncoding, ResultsLoseLittle) {
    constexpr std::size_t kColumns = 600;
    std::mt19937 random(4);
    std::normal_distribution<float> normal;
    std::vector<float> row(kColumns);
    for (float& number : row)
        number = normal(random);
    ByteVector encoded(row_bytes(RowEncoding::i16x256, kColumns));
    encode_rows(RowEncoding::i16x256, kColumns, row, encoded);
    std::vector<float> decoded(kColumns);
    ASSERT_TRUE(decode_results(RowEncoding::i16x256, kColumns, encoded, decoded));
    for (std::size_t start = 0; start < kColumns; start += 256) {
        const std::size_t end = std::min(start + 256, kColumns);
        float top = 0;
        for (std::size_t i = start; i < end; ++i)
            top = std::max(top, std::abs(row[i]));
        for (std::size_t i = start; i < end; ++i)
            EXPECT_LE(std::abs(decoded[i] - row[i]), std::ldexp(top, -15)) << i;
    }
}

// A row of two blocks with one number of the last block's header or body replaced.
std::string refusal(std::size_t at, std::int16_t value) {
    constexpr std::size_t kColumns = 260;
    const std::vector<float> rows(2 * kColumns, 1.0F);
    ByteVector encoded(2 * row_bytes(RowEncoding::i16x256, kColumns));
    encode_rows(RowEncoding::i16x256, kColumns, rows, encoded);
    std::memcpy(encoded.data() + at, &value, sizeof value);
    std::vector<float> decoded(rows.size());
    const Status status = decode_results(RowEncoding::i16x256, kColumns, encoded, decoded);
    if (status) return "";
    EXPECT_EQ(status.error().kind, ErrorKind::invalid);
    return status.error().message;
}

TEST(RowEncoding, WhatNoEncoderWritesIsRefusedByRow) {
    constexpr std::size_t kRow = 2 * 260 + 2 * 2;
    constexpr std::size_t kBlock = 2 + 2 * 256;
    EXPECT_EQ(refusal(0, -126), "");
    EXPECT_EQ(refusal(0, 113), "");
    EXPECT_THAT(refusal(0, -127), HasSubstr("exponent -127"));
    EXPECT_THAT(refusal(0, 114), HasSubstr("exponent 114"));
    EXPECT_THAT(refusal(0, 32766), HasSubstr("exponent 32766"));
    EXPECT_THAT(refusal(0, -32768), HasSubstr("exponent -32768"));
    EXPECT_THAT(refusal(0, 32767), HasSubstr("mantissa"));  // not a number, but with numbers
    EXPECT_EQ(refusal(2, -32767), "");
    EXPECT_THAT(refusal(2, -32768), HasSubstr("mantissa of the block at column 0"));
    EXPECT_THAT(refusal(kBlock, 200), testing::AllOf(HasSubstr("row 0"), HasSubstr("exponent 200 at column 256")));
    EXPECT_THAT(refusal(kRow, 200), HasSubstr("row 1"));
    EXPECT_THAT(refusal(2 * kRow - 2, -32768),
                testing::AllOf(HasSubstr("row 1"), HasSubstr("mantissa of the block at column 256")));
}

TEST(RowEncoding, NoRowsAreNoBytes) {
    for (RowEncoding encoding : {RowEncoding::f32, RowEncoding::i16x256}) {
        encode_rows(encoding, 256, {}, {});
        EXPECT_TRUE(decode_results(encoding, 256, {}, {}));
    }
}

TEST(RowEncoding, ActivationsAreNoResults) {
    std::vector<float> out(256);
    for (RowEncoding encoding : {RowEncoding::q8x256, RowEncoding::q8x32}) {
        const ByteVector row(row_bytes(encoding, 256));
        EXPECT_FALSE(decode_results(encoding, 256, row, out));
    }
}

}  // namespace
}  // namespace kvasir
