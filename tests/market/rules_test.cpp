#include "market/rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "market/offer.h"

namespace kvasir::market {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

TEST(RulesTest, ScarcityFallsWithEveryReplica) {
    EXPECT_EQ(scarcity(0, 3), 48'000U);
    EXPECT_EQ(scarcity(1, 3), 32'000U);
    EXPECT_EQ(scarcity(2, 3), 16'000U);
    EXPECT_EQ(scarcity(3, 3), 750U);
    EXPECT_EQ(scarcity(5, 3), 500U);
    EXPECT_EQ(scarcity(0, 1), 16'000U);
    EXPECT_EQ(scarcity(1, 1), 500U);
}

TEST(RulesTest, AMissingReplicaPaysBetterThanAnyThatIsThereHoweverPopular) {
    for (std::uint32_t wanted = 1; wanted <= 128; ++wanted) {
        EXPECT_GT(price(1'000'000, scarcity(wanted - 1, wanted), kLeastPopular),
                  price(1'000'000, scarcity(wanted, wanted), kMostPopular));
    }
}

TEST(RulesTest, PopularityIsBounded) {
    EXPECT_EQ(popularity(5, 0), 1000U);
    EXPECT_EQ(popularity(0, 1), 250U);
    EXPECT_EQ(popularity(0.5, 1), 500U);
    EXPECT_EQ(popularity(1, 1), 1000U);
    EXPECT_EQ(popularity(3.5, 1), 3500U);
    EXPECT_EQ(popularity(1e9, 1), 4000U);
    EXPECT_EQ(popularity(-1, 1), 250U);
    EXPECT_EQ(popularity(1, std::numeric_limits<double>::quiet_NaN()), 1000U);
}

TEST(RulesTest, MissesRaiseWhatIsWantedUpToTwice) {
    EXPECT_EQ(wanted_replicas(4, 10, 0), 4U);
    EXPECT_EQ(wanted_replicas(4, 9, 1), 4U);
    EXPECT_EQ(wanted_replicas(4, 6, 2), 5U);
    EXPECT_EQ(wanted_replicas(4, 5, 5), 6U);
    EXPECT_EQ(wanted_replicas(4, 0, 5), 8U);
    EXPECT_EQ(wanted_replicas(4, -1, 5), 8U);
}

TEST(RulesTest, RewardIsWholeAndNeverWraps) {
    EXPECT_EQ(reward(1, 5'308'416, 1'000'000), 5308);
    EXPECT_EQ(reward(1000, 5'308'416, 1'000'000), 5'308'416);
    EXPECT_EQ(reward(3, 1'000'000'000, 7), 21);
    EXPECT_EQ(reward(1, 999'999'999, 1), 0);
    EXPECT_EQ(reward(5, 100, 0), 0);
    constexpr auto kMax = std::numeric_limits<std::uint64_t>::max();
    EXPECT_EQ(reward(kMax, kMax, kMax), std::nullopt);
    EXPECT_EQ(reward(kMax, 1'000'000'000, 1), std::nullopt);
    EXPECT_EQ(reward(std::uint64_t{1} << 62, 1'000'000'000, 1), Micros{1} << 62);
}

TEST(RulesTest, BarsDoubleAndAreForgiven) {
    const Rules rules;
    EXPECT_EQ(bar_after(rules, 1), 5min);
    EXPECT_EQ(bar_after(rules, 2), 10min);
    EXPECT_EQ(bar_after(rules, 4), 40min);
    EXPECT_EQ(bar_after(rules, 1000), 24h);
    EXPECT_EQ(forgiven(rules, 3, 23h), 3U);
    EXPECT_EQ(forgiven(rules, 3, 24h), 2U);
    EXPECT_EQ(forgiven(rules, 3, 1000h), 0U);
    EXPECT_EQ(forgiven(rules, 3, -5h), 3U);
}

TEST(RulesTest, SenselessValuesAreNamed) {
    EXPECT_TRUE(check(Rules{}));
    auto refused = [](auto change, const char* name) {
        Rules rules;
        change(rules);
        Status checked = check(rules);
        ASSERT_FALSE(checked) << name;
        EXPECT_EQ(checked.error().kind, ErrorKind::usage);
        EXPECT_THAT(checked.error().message, HasSubstr(name));
    };
    refused([](Rules& r) { r.base_rate = 0; }, "base rate");
    refused([](Rules& r) { r.base_rate = 1'000'000'001; }, "base rate");
    refused([](Rules& r) { r.target = 0; }, "target");
    refused([](Rules& r) { r.target = 65; }, "target");
    refused([](Rules& r) { r.dwell = 0ms; }, "dwell");
    refused([](Rules& r) { r.proof = -1ms; }, "proof");
    refused([](Rules& r) { r.lease = r.heartbeat * 3 - 1ms; }, "three heartbeats");
    refused([](Rules& r) { r.slack_percent = 100; }, "slack");
    refused([](Rules& r) { r.max_pieces = 0; }, "max_pieces");
}

TEST(OfferTest, TakesOnlyLayersThatHoldExperts) {
    Manifest manifest;
    manifest.name = "mixed";
    manifest.layers.push_back({.layer = 1, .experts = 4, .recipe = {}, .tensors = {}});
    manifest.layers[0].tensors.push_back({.name = "up", .slab_bytes = 100, .slabs = std::vector<Digest>(4)});
    manifest.layers[0].tensors.push_back({.name = "down", .slab_bytes = 50, .slabs = std::vector<Digest>(4)});
    manifest.layers.push_back({.layer = 3, .experts = 0, .recipe = {}, .tensors = {}});
    Result<Offer> offer = Offer::from_manifest(manifest, 2);
    ASSERT_TRUE(offer) << offer.error().message;
    ASSERT_EQ(offer->layers().size(), 1U);
    EXPECT_EQ(offer->layers()[0], (OfferLayer{1, 4, 150}));
    EXPECT_EQ(offer->model(), manifest.model_id());
    EXPECT_EQ(offer->bytes(), 600U);

    manifest.layers.erase(manifest.layers.begin());
    EXPECT_EQ(Offer::from_manifest(manifest, 2).error().kind, ErrorKind::unsupported);
}

TEST(OfferTest, CellsAreThoseOfThePiece) {
    const Offer offer = Offer::create({}, "two", 1, {{2, 8, 10}, {5, 4, 20}}).value();
    EXPECT_EQ(offer.cells(), 12U);
    EXPECT_EQ(offer.bytes(), 160U);
    const Offer::Cells cells = offer.cells_of({5, 1, 3}).value();
    EXPECT_EQ(cells.layer, 1U);
    EXPECT_EQ(cells.first, 9U);
    EXPECT_EQ(cells.end, 12U);
    for (const Piece& piece : {Piece{3, 0, 1}, Piece{9, 0, 1}, Piece{5, 4, 1}, Piece{5, 1, 4}, Piece{5, 0, 0},
                               Piece{2, 0xffffffff, 2}, Piece{2, 2, 0xffffffff}}) {
        EXPECT_EQ(offer.cells_of(piece).error().kind, ErrorKind::invalid) << piece.layer << ' ' << piece.first;
    }
}

TEST(OfferTest, ImpossibleGeometryIsRefused) {
    EXPECT_FALSE(Offer::create({}, "empty", 1, {}));
    EXPECT_FALSE(Offer::create({}, "no target", 0, {{1, 1, 1}}));
    EXPECT_FALSE(Offer::create({}, "twice", 1, {{1, 1, 1}, {1, 1, 1}}));
    EXPECT_FALSE(Offer::create({}, "no experts", 1, {{1, 0, 1}}));
    EXPECT_FALSE(Offer::create({}, "no bytes", 1, {{1, 1, 0}}));
    EXPECT_FALSE(Offer::create({}, "large", 1, {{1, kMaxCells, 1}, {2, 1, 1}}));
    EXPECT_TRUE(Offer::create({}, "just not", 1, {{1, kMaxCells, 1}}));
}

}  // namespace
}  // namespace kvasir::market
