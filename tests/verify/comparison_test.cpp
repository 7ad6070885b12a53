#include "verify/comparison.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

namespace kvasir {
namespace {

float next_bit(float value) {
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) ^ 1U);
}

TEST(CompareLogits, EqualBitsAreIdentical) {
    const std::vector<float> logits{1.0F, -2.0F, 0.5F, 3.0F, 0.0F, -0.25F};
    Comparison result;
    compare_logits(logits, logits, 3, 0, result);
    EXPECT_TRUE(result.identical());
    EXPECT_EQ(result.positions, 2U);
    EXPECT_EQ(result.top1_equal, 2U);
    EXPECT_EQ(result.max_abs, 0);
    EXPECT_EQ(result.kl_max, 0);
    EXPECT_EQ(result.min_cosine, 1);
}

TEST(CompareLogits, OneBitOfOneLogitIsADifference) {
    const std::vector<float> logits{1.0F, -2.0F, 0.5F, 3.0F, 0.0F, -0.25F};
    std::vector<float> other = logits;
    other[4] = std::bit_cast<float>(1U);  // the smallest number above zero
    Comparison result;
    compare_logits(logits, other, 3, 40, result);
    EXPECT_FALSE(result.identical());
    EXPECT_EQ(result.positions_different, 1U);
    EXPECT_EQ(result.top1_equal, 2U);
    ASSERT_TRUE(result.first_difference);
    EXPECT_NE(result.first_difference->find("position 41"), std::string::npos) << *result.first_difference;
}

TEST(CompareLogits, NegativeZeroIsNotZero) {
    const std::vector<float> logits{0.0F, 1.0F};
    const std::vector<float> other{-0.0F, 1.0F};
    Comparison result;
    compare_logits(logits, other, 2, 0, result);
    EXPECT_EQ(result.positions_different, 1U);
    EXPECT_EQ(result.max_abs, 0);
}

TEST(CompareLogits, FiguresAreThoseOfTheDefinition) {
    // p = (1/2, 1/2), q = (3/4, 1/4): KL(p||q) = ln(2) - ln(3)/2 ... computed from the definition below.
    const std::vector<float> p{0.0F, 0.0F};
    const std::vector<float> q{std::log(3.0F), 0.0F};
    Comparison result;
    compare_logits(p, q, 2, 0, result);
    const double expected = 0.5 * std::log(0.5 / 0.75) + 0.5 * std::log(0.5 / 0.25);
    EXPECT_NEAR(result.kl_max, expected, 1e-7);
    EXPECT_NEAR(result.kl_mean(), expected, 1e-7);
    EXPECT_NEAR(result.max_abs, std::log(3.0), 1e-6);
    EXPECT_EQ(result.min_cosine, 0);  // of a zero vector

    const std::vector<float> a{1.0F, 0.0F};
    const std::vector<float> b{1.0F, 1.0F};
    Comparison angle;
    compare_logits(a, b, 2, 0, angle);
    EXPECT_NEAR(angle.min_cosine, std::sqrt(0.5), 1e-9);
}

TEST(CompareLogits, TopChoiceThatChangesIsCounted) {
    const std::vector<float> a{1.0F, 2.0F, 1.0F, 2.0F};
    const std::vector<float> b{3.0F, 2.0F, 1.0F, 2.5F};
    Comparison result;
    compare_logits(a, b, 2, 0, result);
    EXPECT_EQ(result.positions, 2U);
    EXPECT_EQ(result.top1_equal, 1U);
}

TEST(CompareLogits, NotANumberHasNoFiniteFigures) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const std::vector<float> reference{nan, 1.0F};
    Comparison same;
    compare_logits(reference, reference, 2, 0, same);
    EXPECT_TRUE(same.identical());
    EXPECT_EQ(same.positions_not_finite, 1U);

    const std::vector<float> good{0.0F, 1.0F};
    Comparison result;
    compare_logits(good, reference, 2, 0, result);
    EXPECT_TRUE(std::isinf(result.max_abs));
    EXPECT_TRUE(std::isinf(result.kl_max));
    EXPECT_EQ(result.min_cosine, 0);
}

class CompareExperts : public testing::Test {
  protected:
    CompareExperts() {
        for (std::uint32_t layer : {0U, 3U}) {
            std::vector<float> rows(8);
            for (std::size_t i = 0; i < rows.size(); ++i)
                rows[i] = static_cast<float>(i) * 0.1F + layer;
            reference_.add(layer, 2, rows);
        }
    }
    ExpertRecord reference_;
};

TEST_F(CompareExperts, EqualRowsAreIdentical) {
    Comparison result;
    compare_experts(reference_, reference_, 0, result);
    EXPECT_TRUE(result.identical());
    EXPECT_EQ(result.rows, 8U);
    EXPECT_TRUE(result.layers_unseen.empty());
}

TEST_F(CompareExperts, OneBitOfOneRowIsADifference) {
    ExpertRecord other;
    other.add(0, 2, reference_.layers().at(0).values);
    std::vector<float> rows = reference_.layers().at(3).values;
    rows[5] = next_bit(rows[5]);
    other.add(3, 2, rows);
    Comparison result;
    compare_experts(reference_, other, 128, result);
    EXPECT_EQ(result.rows_different, 1U);
    EXPECT_GT(result.row_max_abs, 0);
    ASSERT_TRUE(result.first_difference);
    EXPECT_NE(result.first_difference->find("row 2 of layer 3"), std::string::npos) << *result.first_difference;
}

TEST_F(CompareExperts, MissingRowsAreADifferenceAndAMissingLayerIsNamed) {
    ExpertRecord other;
    other.add(3, 2, std::vector<float>(6));
    Comparison result;
    compare_experts(reference_, other, 0, result);
    EXPECT_EQ(result.rows_different, 4U);
    EXPECT_EQ(result.layers_unseen, std::set<std::uint32_t>{0});
}

TEST_F(CompareExperts, ARecordStartsOver) {
    ExpertRecord other;
    other.add(0, 2, std::vector<float>(8));
    other.clear();
    other.add(0, 2, reference_.layers().at(0).values);
    other.add(3, 2, std::vector<float>(2));
    other.remove_last(3, 2);
    other.add(3, 2, reference_.layers().at(3).values);
    Comparison result;
    compare_experts(reference_, other, 0, result);
    EXPECT_TRUE(result.identical()) << *result.first_difference;
}

}  // namespace
}  // namespace kvasir
