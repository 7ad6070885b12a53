// Engines whose memory runs out in the middle of a call.
#include <gtest/gtest.h>

#include "expert/engine.h"
#include "expert/failing_memory.h"
#include "expert/portable_reference.h"
#include "expert/random_layer.h"

namespace kvasir {
namespace {

using test::FailingMemory;

struct MemoryCase {
    const char* name;
    Arithmetic arithmetic;
    ggml_type gate;
    ggml_type up;
};
class MemoryOf : public testing::TestWithParam<MemoryCase> {};

// However few allocations succeed: an error of the call, and the next one is as good as ever. Large enough for the
// whole team, whose other threads have nobody to catch what they throw, and so allocate nothing.
TEST_P(MemoryOf, RunningOutIsAnErrorOfTheCall) {
    const auto& [name, arithmetic, gate, up] = GetParam();
    const test::RandomLayer layer({.activation = Activation::silu}, {256, 512, 5, up, GGML_TYPE_Q8_0, gate}, 3);
    std::mt19937 random(4);
    const std::vector<float> numbers = test::random_floats(random, 6 * layer.weights().hidden, -1, 1);
    const std::vector<Pair> pairs = test::random_pairs(random, 6, 3, layer.weights().experts);
    const ByteVector rows = test::encoded_rows(arithmetic, layer.weights(), numbers);
    ByteVector expected(pairs.size() * row_bytes(output_encoding(arithmetic), layer.weights().hidden));
    auto untroubled = std::move(*Engine::create(arithmetic, 2));
    ASSERT_TRUE(untroubled->compute(layer.weights(), layer.recipe(), rows, pairs, expected));

    auto engine = std::move(*Engine::create(arithmetic, 2));
    bool enough = false;
    for (std::size_t allowed = 0; !enough && allowed < 1000; ++allowed) {
        ByteVector out(expected.size());
        Status computed;
        {
            const FailingMemory memory(allowed);
            computed = engine->compute(layer.weights(), layer.recipe(), rows, pairs, out);
        }
        EXPECT_EQ(FailingMemory::allocations_elsewhere(), 0U);
        enough = computed.has_value();
        if (enough) {
            EXPECT_EQ(out, expected);
        }
        ASSERT_FALSE(enough && allowed == 0) << "nothing was allocated: this tests nothing";
    }
    EXPECT_TRUE(enough);
}

INSTANTIATE_TEST_SUITE_P(Arithmetics, MemoryOf,
                         testing::Values(MemoryCase{"portable", Arithmetic::portable, GGML_TYPE_Q4_K, GGML_TYPE_Q4_K},
                                         MemoryCase{"two_forms", Arithmetic::portable, GGML_TYPE_Q8_0, GGML_TYPE_Q4_K},
                                         MemoryCase{"exact", Arithmetic::exact, GGML_TYPE_Q4_K, GGML_TYPE_Q4_K}),
                         [](const auto& param_info) { return std::string(param_info.param.name); });

}  // namespace
}  // namespace kvasir
