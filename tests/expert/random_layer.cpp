#include "expert/random_layer.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <span>

namespace kvasir::test {

std::vector<float> random_floats(std::mt19937& random, std::size_t count, float from, float to) {
    std::uniform_real_distribution<float> distribution(from, to);
    std::vector<float> numbers(count);
    std::ranges::generate(numbers, [&] { return distribution(random); });
    return numbers;
}

std::vector<Pair> random_pairs(std::mt19937& random, std::uint32_t rows, std::uint32_t slots, std::uint32_t experts) {
    std::vector<std::uint32_t> all(experts);
    std::iota(all.begin(), all.end(), 0U);
    std::vector<Pair> pairs;
    for (std::uint32_t row = 0; row < rows; ++row) {
        std::ranges::shuffle(all, random);
        for (std::uint32_t slot = 0; slot < slots; ++slot)
            pairs.push_back({row, all[slot]});
    }
    return pairs;
}

namespace {

// Types whose quantisation searches a grid, for seconds. Any bits of theirs are valid but the half-precision scale.
bool slow_to_quantise(ggml_type type) {
    return type == GGML_TYPE_IQ1_S || type == GGML_TYPE_IQ1_M || type == GGML_TYPE_IQ2_XXS ||
           type == GGML_TYPE_IQ2_XS || type == GGML_TYPE_IQ2_S || type == GGML_TYPE_IQ3_XXS || type == GGML_TYPE_IQ3_S;
}

// Blocks begin with their scale; IQ1_M's lies in the upper four bits of its last four 16-bit words.
void set_scale(ggml_type type, std::span<std::byte> block, ggml_fp16_t scale) {
    if (type != GGML_TYPE_IQ1_M) {
        std::memcpy(block.data(), &scale, sizeof scale);
        return;
    }
    for (std::size_t i = 0; i < 4; ++i) {
        std::byte& upper = block[block.size() - 8 + 2 * i + 1];
        upper = (upper & std::byte{0x0F}) | static_cast<std::byte>((scale >> (4 * i) & 15) << 4);
    }
}

void fill_random_blocks(std::mt19937& random, ggml_type type, std::span<std::byte> bytes) {
    const ggml_fp16_t scale = ggml_fp32_to_fp16(0.002F);
    std::ranges::generate(bytes, [&] { return static_cast<std::byte>(random()); });
    const std::size_t size = ggml_type_size(type);
    for (std::size_t at = 0; at < bytes.size(); at += size)
        set_scale(type, bytes.subspan(at, size), scale);
}

}  // namespace

RandomLayer::RandomLayer(const Recipe& recipe, const LayerShape& shape, std::uint32_t seed)
    : recipe_(recipe), random_(seed), weights_{shape.hidden, shape.ff, shape.experts, {}} {
    const std::uint64_t up_width = recipe.fused_gate_up ? 2 * shape.ff : shape.ff;
    if (recipe.fused_gate_up) {
        add_matrix(Role::gate_up, shape.in_type, shape.hidden, up_width);
    } else {
        add_matrix(Role::up, shape.in_type, shape.hidden, shape.ff);
        if (recipe.gated) add_matrix(Role::gate, shape.gate_type.value_or(shape.in_type), shape.hidden, shape.ff);
    }
    add_matrix(Role::down, shape.down_type, shape.ff, shape.hidden);
    if (recipe.gate_bias) add_floats(Role::gate_bias, shape.ff, -1, 1);
    if (recipe.up_bias) add_floats(recipe.fused_gate_up ? Role::gate_up_bias : Role::up_bias, up_width, -1, 1);
    if (recipe.down_bias) add_floats(Role::down_bias, shape.hidden, -1, 1);
    if (recipe.gate_scale) add_floats(Role::gate_scale, 0, 0.5F, 2);
    if (recipe.up_scale) add_floats(Role::up_scale, 0, 0.5F, 2);
    if (recipe.down_scale) add_floats(Role::down_scale, 0, 0.5F, 2);
}

void RandomLayer::add_matrix(Role role, ggml_type type, std::uint64_t columns, std::uint64_t rows) {
    const auto row_length = static_cast<std::int64_t>(columns);
    const auto row_count = static_cast<std::int64_t>(rows * weights_.experts);
    const std::vector<float> wanted = random_floats(random_, columns * rows * weights_.experts, -0.5F, 0.5F);
    std::vector<std::byte>& bytes = bytes_[role];
    bytes.resize(ggml_row_size(type, row_length) * static_cast<std::size_t>(row_count));
    if (slow_to_quantise(type)) {
        fill_random_blocks(random_, type, bytes);
    } else {
        ggml_quantize_chunk(type, wanted.data(), bytes.data(), 0, row_count, row_length, nullptr);
    }
    std::vector<float>& values = values_[role];
    values.resize(wanted.size());
    const ggml_to_float_t to_float = ggml_get_type_traits(type)->to_float;
    if (to_float != nullptr) {
        to_float(bytes.data(), values.data(), static_cast<std::int64_t>(wanted.size()));
    } else {
        values = wanted;
    }
    weights_.tensors[static_cast<std::size_t>(role)] =
        WeightView{static_cast<std::uint32_t>(type), {columns, rows, weights_.experts, 1}, bytes.data()};
}

// One number per expert where `columns` is 0.
void RandomLayer::add_floats(Role role, std::uint64_t columns, float from, float to) {
    const bool per_expert = columns == 0;
    std::vector<float>& values = values_[role];
    values = random_floats(random_, (per_expert ? 1 : columns) * weights_.experts, from, to);
    const auto* data = reinterpret_cast<const std::byte*>(values.data());
    WeightView view{GGML_TYPE_F32, {columns, weights_.experts, 1, 1}, data};
    if (per_expert) view.shape = {weights_.experts, 1, 1, 1};
    weights_.tensors[static_cast<std::size_t>(role)] = view;
}

}  // namespace kvasir::test
