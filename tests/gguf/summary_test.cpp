#include "gguf/summary.h"

#include <fmt/format.h>
#include <ggml.h>
#include <gtest/gtest.h>

#include "gguf/gguf_builder.h"

namespace kvasir {
namespace {

using testing::GgufBuilder;

// Four layers of 8 experts; the down matrices of layers 1 and 3 are larger: the usual quantisation mix.
GgufBuilder mixed_model() {
    GgufBuilder builder = testing::tiny_moe_metadata({.layers = 4, .hidden = 256, .ff = 256, .experts = 8});
    for (std::uint32_t layer = 0; layer < 4; ++layer) {
        const std::uint32_t down = layer % 2 == 0 ? GGML_TYPE_Q4_K : GGML_TYPE_Q6_K;
        builder.tensor(fmt::format("blk.{}.attn_q.weight", layer), GGML_TYPE_F32, {4, 4});
        builder.tensor(fmt::format("blk.{}.ffn_up_exps.weight", layer), GGML_TYPE_Q4_K, {256, 256, 8});
        builder.tensor(fmt::format("blk.{}.ffn_down_exps.weight", layer), down, {256, 256, 8});
    }
    return builder;
}

constexpr std::uint64_t kQ4 = 256 * 144;
constexpr std::uint64_t kQ6 = 256 * 210;
constexpr std::uint64_t kSmall = 2 * kQ4;
constexpr std::uint64_t kLarge = kQ4 + kQ6;

Summary mixed_summary() {
    const ByteVector header = mixed_model().header();
    const GgufModel model = GgufModel::parse(header, header.size(), GgufLength::header_only).value();
    return summarize(model, map_experts(model).value().layers);
}

TEST(Summary, GroupsLayersThatAreAlike) {
    const Summary summary = mixed_summary();
    ASSERT_EQ(summary.groups.size(), 2U);
    EXPECT_EQ(summary.groups[0].layers, (std::vector<Range>{{0, 0}, {2, 2}}));
    EXPECT_EQ(summary.groups[1].layers, (std::vector<Range>{{1, 1}, {3, 3}}));
    EXPECT_EQ(summary.groups[0].experts(), 16U);
    EXPECT_EQ(summary.groups[1].example.expert_bytes(), kLarge);
    ASSERT_EQ(summary.expert_sizes.size(), 2U);
    EXPECT_EQ(summary.expert_sizes[0].bytes, kSmall);
    EXPECT_EQ(summary.expert_sizes[0].experts, 16U);
    EXPECT_EQ(summary.expert_sizes[1].bytes, kLarge);
}

TEST(Summary, JoinsNeighbours) {
    const ByteVector header = testing::tiny_moe({.layers = 5}).header();
    const GgufModel model = GgufModel::parse(header, header.size(), GgufLength::header_only).value();
    const Summary summary = summarize(model, map_experts(model).value().layers);
    ASSERT_EQ(summary.groups.size(), 1U);
    EXPECT_EQ(summary.groups[0].layers, (std::vector<Range>{{0, 4}}));
    EXPECT_EQ(summary.groups[0].layer_count, 5U);
}

TEST(Summary, CountsTypes) {
    const Summary summary = mixed_summary();
    ASSERT_EQ(summary.types.size(), 4U);
    EXPECT_EQ(summary.types[0].tensor, "ffn_up_exps.weight");
    EXPECT_EQ(summary.types[0].tensors, 4U);
    EXPECT_EQ(summary.types[0].bytes, 4 * 8 * kQ4);
    EXPECT_TRUE(summary.types[0].routed);
    EXPECT_EQ(summary.types[1].tensor, "ffn_down_exps.weight");
    EXPECT_EQ(summary.types[1].type, static_cast<std::uint32_t>(GGML_TYPE_Q6_K));
    EXPECT_EQ(summary.types[3].tensor, "attn_q.weight");
    EXPECT_FALSE(summary.types[3].routed);
}

TEST(Summary, FitsABudget) {
    const Summary summary = mixed_summary();
    BudgetFit fit = fit_budget(summary, kSmall - 1);
    EXPECT_EQ(fit.experts_at_most, 0U);
    EXPECT_EQ(fit.workers, 0U);
    fit = fit_budget(summary, 10 * kSmall);
    EXPECT_EQ(fit.experts_at_most, 10U);
    EXPECT_EQ(fit.experts_at_least, 10 * kSmall / kLarge);
    EXPECT_EQ(fit.bytes_at_most, 10 * kSmall);
    EXPECT_EQ(fit.workers, (32 + fit.experts_at_least - 1) / fit.experts_at_least);
    fit = fit_budget(summary, 16 * (kSmall + kLarge));
    EXPECT_EQ(fit.experts_at_most, 32U);
    EXPECT_EQ(fit.experts_at_least, 32U);
    EXPECT_EQ(fit.workers, 1U);
    fit = fit_budget(summary, ~std::uint64_t{0});
    EXPECT_EQ(fit.experts_at_most, 32U);
    EXPECT_EQ(fit_budget(Summary{}, 1000).workers, 0U);
}

}  // namespace
}  // namespace kvasir
