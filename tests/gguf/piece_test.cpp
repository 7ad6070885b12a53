#include "gguf/piece.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kvasir {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using Ranges = std::vector<Range>;
using Pieces = std::vector<Piece>;

std::string range_error(std::string_view text) {
    Result<Ranges> ranges = parse_ranges(text, "--experts");
    EXPECT_FALSE(ranges.has_value()) << text;
    return ranges ? "" : ranges.error().message;
}

// Layers 1, 2 and 5 with 8 experts each.
ExpertMap small_map() {
    ExpertMap map;
    for (const std::uint32_t number : {1U, 2U, 5U}) {
        ExpertLayer layer;
        layer.layer = number;
        layer.experts = 8;
        map.layers.push_back(layer);
    }
    return map;
}

std::string select_error(const Ranges& layers, const Ranges& experts) {
    Result<Pieces> pieces = select_pieces(small_map(), layers, experts);
    EXPECT_FALSE(pieces.has_value());
    return pieces ? "" : pieces.error().message;
}

TEST(Ranges, Parse) {
    EXPECT_EQ(parse_ranges("0-3,7", "x").value(), (Ranges{{0, 3}, {7, 7}}));
    EXPECT_EQ(parse_ranges("5", "x").value(), (Ranges{{5, 5}}));
    EXPECT_EQ(parse_ranges("7,0-3", "x").value(), (Ranges{{0, 3}, {7, 7}}));
    EXPECT_EQ(parse_ranges("0-3,4,2-6", "x").value(), (Ranges{{0, 6}}));
    EXPECT_EQ(parse_ranges("0-9,2-3", "x").value(), (Ranges{{0, 9}}));
    EXPECT_EQ(parse_ranges("1000000", "x").value(), (Ranges{{1'000'000, 1'000'000}}));
}

TEST(Ranges, RefuseAndSayWhy) {
    EXPECT_THAT(range_error(""), AllOf(HasSubstr("--experts"), HasSubstr("nothing given")));
    EXPECT_THAT(range_error("a"), AllOf(HasSubstr("--experts"), HasSubstr("'a'"), HasSubstr("neither a number")));
    EXPECT_THAT(range_error("5-1"), AllOf(HasSubstr("backwards"), HasSubstr("1-5")));
    EXPECT_THAT(range_error("1000001"), HasSubstr("up to 1000000"));
    EXPECT_THAT(range_error("99999999999999999999"), HasSubstr("up to 1000000"));
    for (const char* text : {",", "1,", ",1", "1,,2", "-", "-1", "1-", "1-2-3", " 1", "1 ", "0x1", "+1", "1.5", "--"}) {
        EXPECT_THAT(range_error(text), HasSubstr("--experts")) << text;
    }
}

TEST(Ranges, Describe) {
    EXPECT_EQ(describe(std::span<const Range>(Ranges{{0, 3}, {7, 7}})), "0-3,7");
}

TEST(Pieces, Select) {
    EXPECT_EQ(select_pieces(small_map(), Ranges{{1, 2}}, Ranges{{0, 1}, {4, 7}}).value(),
              (Pieces{{1, 0, 2}, {1, 4, 4}, {2, 0, 2}, {2, 4, 4}}));
    EXPECT_EQ(select_pieces(small_map(), Ranges{{5, 5}}, Ranges{{7, 7}}).value(), (Pieces{{5, 7, 1}}));
}

TEST(Pieces, SelectRefusesWhatDoesNotExist) {
    EXPECT_THAT(select_error({{1, 5}}, {{0, 0}}), AllOf(HasSubstr("layer 3"), HasSubstr("1-2,5")));
    EXPECT_THAT(select_error({{0, 1'000'000}}, {{0, 0}}), HasSubstr("layer 0"));
    EXPECT_THAT(select_error({{5, 5}}, {{4, 8}}), AllOf(HasSubstr("layer 5"), HasSubstr("4-8"), HasSubstr("0-7")));
    EXPECT_THAT(select_error({{5, 5}}, {{1'000'000, 1'000'000}}), HasSubstr("1000000"));
    Result<Pieces> dense = select_pieces(ExpertMap{}, Ranges{{0, 0}}, Ranges{{0, 0}});
    ASSERT_FALSE(dense);
    EXPECT_THAT(dense.error().message, HasSubstr("no routed experts"));
}

TEST(Pieces, Normalize) {
    EXPECT_EQ(normalized({{2, 0, 4}, {1, 4, 4}, {1, 0, 4}}), (Pieces{{1, 0, 8}, {2, 0, 4}}));
    EXPECT_EQ(normalized({{1, 0, 8}, {1, 2, 2}, {1, 10, 1}}), (Pieces{{1, 0, 8}, {1, 10, 1}}));
    EXPECT_EQ(normalized({{1, 3, 0}}), Pieces{});
    EXPECT_EQ(normalized({}), Pieces{});
}

TEST(Pieces, Contain) {
    const Piece piece{.layer = 1, .first = 4, .count = 2};
    EXPECT_FALSE(piece.contains(3));
    EXPECT_TRUE(piece.contains(4));
    EXPECT_TRUE(piece.contains(5));
    EXPECT_FALSE(piece.contains(6));
}

TEST(Pieces, Describe) {
    const Pieces pieces = {{0, 0, 64}, {1, 0, 64}, {2, 0, 64}, {3, 0, 64}, {7, 0, 32}, {7, 64, 64}, {9, 5, 1}};
    EXPECT_EQ(describe(std::span<const Piece>(pieces)),
              "layers 0-3: experts 0-63; layer 7: experts 0-31,64-127; layer 9: experts 5");
    EXPECT_EQ(describe(std::span<const Piece>()), "nothing");
}

}  // namespace
}  // namespace kvasir
