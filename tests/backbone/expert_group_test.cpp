#include "backbone/expert_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "backbone/moe_graph.h"
#include "ggml-impl.h"

namespace kvasir {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

Recipe swiglu() {
    return {.activation = Activation::silu};
}

// One layer's graph, and the means to spoil it.
class ExpertGroupTest : public ::testing::Test {
  protected:
    void build(const Recipe& recipe, const MoeShape& shape = {}) {
        shape_ = shape;
        context_ = make_context();
        weights_ = make_weights(context_.get(), recipe, shape);
        moe_ = build_moe(context_.get(), recipe, weights_, shape);
    }
    GroupScan scan() const { return find_expert_groups(*moe_.graph); }
    // Adds a reader of `tensor` at the graph's end.
    void also_read(ggml_tensor* tensor) {
        ggml_build_forward_expand(moe_.graph, ggml_scale(context_.get(), tensor, 2.0F));
    }
    int index_of(const ggml_tensor* tensor) const {
        ggml_tensor** end = moe_.graph->nodes + moe_.graph->n_nodes;
        return static_cast<int>(std::find(moe_.graph->nodes, end, tensor) - moe_.graph->nodes);
    }
    // No group, and why its down projection is in none.
    void expect_refused(const std::string& reason) const {
        GroupScan found = scan();
        EXPECT_THAT(found.groups, IsEmpty());
        bool told = std::any_of(found.unmatched.begin(), found.unmatched.end(), [&](const UnmatchedOp& op) {
            return op.node->src[0] == weights_.down && op.reason.find(reason) != std::string::npos;
        });
        EXPECT_TRUE(told) << "expected: " << reason
                          << ", got: " << (found.unmatched.empty() ? "nothing" : found.unmatched.back().reason);
    }

    MoeShape shape_;
    ContextPtr context_;
    MoeWeights weights_;
    MoeGraph moe_;
};

std::vector<Recipe> plain_recipes() {
    std::vector<Recipe> recipes;
    for (Activation activation : {Activation::silu, Activation::gelu, Activation::relu}) {
        recipes.push_back({.activation = activation});
        recipes.push_back({.activation = activation, .gated = false});
        recipes.push_back({.activation = activation, .fused_gate_up = true});
    }
    recipes.push_back({.activation = Activation::relu_squared, .gated = false});
    recipes.push_back({.activation = Activation::swiglu_oai, .alpha = 1.702F, .limit = 7.0F});
    recipes.push_back({.activation = Activation::swiglu_clamp, .limit = 10.0F});
    recipes.push_back({.activation = Activation::swiglu_limited, .limit = 7.5F});
    recipes.push_back({.activation = Activation::swiglu_limited, .fused_gate_up = true, .limit = 7.5F});
    return recipes;
}

// Every activation, with and without biases and scales, which for a fused tensor are one each.
std::vector<Recipe> all_recipes() {
    std::vector<Recipe> recipes;
    for (const Recipe& plain : plain_recipes()) {
        bool own_gate = plain.gated && !plain.fused_gate_up;
        for (int extras = 0; extras < 4; ++extras) {
            Recipe recipe = plain;
            recipe.up_bias = recipe.down_bias = (extras & 1) != 0;
            recipe.up_scale = recipe.down_scale = (extras & 2) != 0;
            recipe.gate_bias = recipe.up_bias && own_gate;
            recipe.gate_scale = recipe.up_scale && own_gate;
            recipes.push_back(recipe);
        }
        Recipe down_only = plain;
        down_only.down_scale = true;
        recipes.push_back(down_only);
    }
    return recipes;
}

TEST_F(ExpertGroupTest, ReadsEveryRecipeOffItsGraph) {
    for (const Recipe& recipe : all_recipes()) {
        for (bool before : {false, true}) {
            SCOPED_TRACE(describe(recipe) + (before ? ", weighted before" : ""));
            build(recipe, {.weight_before = before});
            GroupScan found = scan();
            EXPECT_THAT(found.unmatched, IsEmpty());
            ASSERT_THAT(found.groups, SizeIs(1));
            const ExpertGroup& group = found.groups.front();
            EXPECT_EQ(group.recipe, recipe) << describe(group.recipe);
            EXPECT_EQ(group.rows, moe_.rows);
            EXPECT_EQ(group.ids, moe_.ids);
            EXPECT_EQ(group.out, moe_.out);
            EXPECT_EQ(group.last, index_of(moe_.out));
            EXPECT_EQ(group[Role::down], weights_.down);
            EXPECT_EQ(group[Role::gate], weights_.gate);
            EXPECT_EQ(group[Role::up], weights_.up);
            EXPECT_EQ(group[Role::gate_up], weights_.gate_up);
            EXPECT_EQ(group[Role::down_bias], weights_.down_bias);
            EXPECT_EQ(group[Role::down_scale], weights_.down_scale);
            EXPECT_EQ(group.row_of(2, 1), before ? 5U : 2U);
            EXPECT_EQ(layer_number(group).value(), 5U);
        }
    }
}

TEST_F(ExpertGroupTest, TellsItsGeometry) {
    build(swiglu(), {.hidden = 96, .ff = 32, .experts = 7, .slots = 3, .tokens = 4});
    const ExpertGroup group = scan().groups.at(0);
    EXPECT_EQ(group.hidden(), 96U);
    EXPECT_EQ(group.experts(), 7U);
    EXPECT_EQ(group.slots(), 3U);
    EXPECT_EQ(group.tokens(), 4U);
}

TEST_F(ExpertGroupTest, TakesRolesFromTheActivationNotFromTheOrder) {
    build(swiglu());
    std::swap(moe_.graph->nodes[index_of(moe_.gate)], moe_.graph->nodes[index_of(moe_.up)]);
    const ExpertGroup group = scan().groups.at(0);
    EXPECT_EQ(group[Role::gate], weights_.gate);
    EXPECT_EQ(group[Role::up], weights_.up);
}

TEST_F(ExpertGroupTest, FindsEveryLayerOfAGraph) {
    build(swiglu());
    MoeGraph first = moe_;
    MoeShape next = shape_;
    next.layer = 6;
    MoeWeights weights = make_weights(context_.get(), swiglu(), next);
    append_moe(context_.get(), swiglu(), weights, next, moe_);
    GroupScan found = scan();
    EXPECT_THAT(found.unmatched, IsEmpty());
    ASSERT_THAT(found.groups, SizeIs(2));
    EXPECT_EQ(found.groups[0].out, first.out);
    EXPECT_EQ(found.groups[1].out, moe_.out);
    EXPECT_GT(found.groups[1].first, found.groups[0].last);
    EXPECT_EQ(layer_number(found.groups[1]).value(), 6U);
}

TEST_F(ExpertGroupTest, RefusesWhenSomethingElseReadsAnIntermediate) {
    Recipe recipe{.activation = Activation::silu, .up_bias = true, .down_bias = true, .down_scale = true};
    for (int which = 0; which < 5; ++which) {
        SCOPED_TRACE(which);
        build(recipe);
        ggml_tensor* before_bias = moe_.out->src[0];
        std::vector<ggml_tensor*> inner = {moe_.gate, moe_.up, moe_.up->src[0], moe_.hidden, before_bias};
        also_read(inner.at(static_cast<std::size_t>(which)));
        expect_refused("is also read by something else");
    }
}

TEST_F(ExpertGroupTest, RefusesWhenSomethingElseReadsTheFusedTensor) {
    Recipe recipe{.activation = Activation::silu, .fused_gate_up = true};
    build(recipe);
    also_read(moe_.gate_up);
    expect_refused("is also read by something else");
    build(recipe);
    also_read(moe_.up);  // through one of its views
    expect_refused("is also read by something else");
}

TEST_F(ExpertGroupTest, LetsAnyoneReadItsOutputRowsAndIds) {
    build(swiglu());
    also_read(moe_.out);
    also_read(moe_.rows);
    EXPECT_THAT(scan().groups, SizeIs(1));
}

TEST_F(ExpertGroupTest, RefusesAnIntermediateThatIsAnOutput) {
    build(swiglu());
    ggml_set_output(moe_.hidden);
    expect_refused("is also read by something else");
}

TEST_F(ExpertGroupTest, RefusesForeignWorkBetweenItsParts) {
    build(swiglu());
    also_read(moe_.rows);
    int foreign = moe_.graph->n_nodes - 1;
    int at = index_of(moe_.hidden);
    std::rotate(moe_.graph->nodes + at, moe_.graph->nodes + foreign, moe_.graph->nodes + foreign + 1);
    expect_refused("lies between its parts");
}

TEST_F(ExpertGroupTest, RefusesPartsInTheWrongOrder) {
    build(swiglu());
    std::swap(moe_.graph->nodes[index_of(moe_.hidden)], moe_.graph->nodes[index_of(moe_.out)]);
    expect_refused("is computed after what reads it");
}

// With an evaluation callback llama.cpp's scheduler computes parts of a split.
TEST_F(ExpertGroupTest, RefusesEveryProperPartOfAGroup) {
    build({.activation = Activation::silu, .up_bias = true, .down_bias = true});
    ExpertGroup whole = scan().groups.at(0);
    for (int begin = whole.first; begin <= whole.last; ++begin) {
        for (int end = begin + 1; end <= whole.last + 1; ++end) {
            ggml_cgraph part = ggml_graph_view(moe_.graph, begin, end);
            bool complete = begin == whole.first && end == whole.last + 1;
            // Cut before the bias, the shorter group's output is read by the bias alone: exact, and found.
            bool exact = begin == whole.first && end == whole.last;
            EXPECT_EQ(find_expert_groups(part).groups.size(), complete || exact ? 1U : 0U) << begin << " to " << end;
        }
    }
}

TEST_F(ExpertGroupTest, SaysNothingOfWhatIsNotComputed) {
    build(swiglu());
    for (int i = 0; i < moe_.graph->n_nodes; ++i)
        moe_.graph->nodes[i]->flags &= ~GGML_TENSOR_FLAG_COMPUTE;
    GroupScan found = scan();
    EXPECT_THAT(found.groups, IsEmpty());
    EXPECT_THAT(found.unmatched, IsEmpty());
}

TEST_F(ExpertGroupTest, RefusesDifferentIdsWithinOneGroup) {
    build(swiglu());
    ggml_tensor* other =
        ggml_view_2d(context_.get(), moe_.argsort, shape_.slots, shape_.tokens, moe_.argsort->nb[1], 4);
    moe_.gate->src[2] = other;
    expect_refused("different ids");
}

TEST_F(ExpertGroupTest, RefusesDifferentRowsForGateAndUp) {
    build(swiglu());
    moe_.gate->src[1] = ggml_new_tensor_3d(context_.get(), GGML_TYPE_F32, shape_.hidden, 1, shape_.tokens);
    expect_refused("different rows");
}

TEST_F(ExpertGroupTest, RefusesAnAdapterOnAProjection) {
    build(swiglu());
    ggml_tensor* added = ggml_add(context_.get(), moe_.up, ggml_scale(context_.get(), moe_.up, 0.5F));
    ggml_tensor* hidden = ggml_swiglu_split(context_.get(), moe_.gate, added);
    moe_.graph = ggml_new_graph_custom(context_.get(), 128, false);
    ggml_build_forward_expand(moe_.graph, ggml_mul_mat_id(context_.get(), weights_.down, hidden, moe_.ids));
    expect_refused("where a MUL_MAT_ID is expected");
}

TEST_F(ExpertGroupTest, RefusesActivationsItDoesNotKnow) {
    for (int which = 0; which < 4; ++which) {
        SCOPED_TRACE(which);
        build(swiglu());
        ggml_context* context = context_.get();
        ggml_tensor* hidden = nullptr;
        if (which == 0) hidden = ggml_glu_split(context, moe_.gate, moe_.up, GGML_GLU_OP_GEGLU_ERF);
        if (which == 1) hidden = ggml_tanh(context, moe_.up);
        if (which == 2) hidden = ggml_mul(context, ggml_tanh(context, moe_.gate), moe_.up);  // as SiTU begins
        if (which == 3) hidden = ggml_sqr(context, moe_.up);
        moe_.graph = ggml_new_graph_custom(context, 64, false);
        ggml_build_forward_expand(moe_.graph, ggml_mul_mat_id(context, weights_.down, hidden, moe_.ids));
        expect_refused("its activation is");
    }
}

TEST_F(ExpertGroupTest, RefusesClampsThatAreNotSymmetric) {
    build({.activation = Activation::swiglu_limited, .limit = 7.0F});
    ggml_tensor* up_clamp = moe_.hidden->src[1];
    float lower = -6.0F;
    std::memcpy(up_clamp->op_params, &lower, sizeof(lower));
    expect_refused("unknown limits");
}

TEST_F(ExpertGroupTest, RefusesSwappedHalves) {
    build({.activation = Activation::silu, .fused_gate_up = true});
    std::swap(moe_.hidden->src[0], moe_.hidden->src[1]);
    expect_refused("not the two halves");
}

TEST_F(ExpertGroupTest, LeavesAMultiplicationByOrdinaryWeightsOutside) {
    // The router's weights are gathered by GET_ROWS too, but from its probabilities, without a REPEAT.
    build(swiglu());
    EXPECT_FALSE(is_expert_scale(moe_.router));
    EXPECT_EQ(scan().groups.at(0).out, moe_.out);
    EXPECT_NE(moe_.weighted, moe_.out);
}

TEST_F(ExpertGroupTest, TrustsNamesForTheLayerOnlyWhenTheyAreStrictlyRight) {
    const std::vector<std::pair<const char*, const char*>> names = {
        {"blk.7.ffn_down_exps.weight", ""},
        {"blk.7.ffn_down_chexps.weight", "is not named as"},  // grovemoe's second set of experts
        {"blk.7.ffn_up_exps.weight", "is not named as"},
        {"blk.07.ffn_down_exps.weight", "is not named as"},
        {"blk.-7.ffn_down_exps.weight", "is not named as"},
        {"blk.99999999999.ffn_down_exps.weight", "is not named as"},
        {"blk.7", "is not named as"},
        {"blk..ffn_down_exps.weight", "is not named as"},
        {"v.blk.7.ffn_down_exps.weight", "is not named as"},
        {"blk.8.ffn_down_exps.weight", "another layer"},
    };
    for (const auto& [name, reason] : names) {
        SCOPED_TRACE(name);
        build(swiglu(), {.layer = 7});
        ggml_set_name(weights_.down, name);
        Result<std::uint32_t> layer = layer_number(scan().groups.at(0));
        if (*reason == '\0') {
            EXPECT_EQ(layer.value(), 7U);
        } else {
            ASSERT_FALSE(layer);
            EXPECT_THAT(layer.error().message, HasSubstr(reason));
        }
    }
}

}  // namespace
}  // namespace kvasir
