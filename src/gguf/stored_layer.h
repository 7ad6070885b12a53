// What a manifest and a slice both say about an expert layer: which tensors its recipe implies, their names and shapes.
#pragma once

#include <array>
#include <vector>

#include "gguf/expert_map.h"

namespace kvasir {

// The roles of the tensors that a layer of this recipe has, ascending.
std::vector<Role> roles_of(const Recipe& recipe);

struct TensorShape {
    std::array<std::uint64_t, 4> ne = {1, 1, 1, 1};  // ne[0] is the innermost
    int dimensions = 1;
};
TensorShape expert_shape(Role role, std::uint64_t hidden, std::uint64_t ff, std::uint64_t experts);

// The 16 bytes of write_recipe() and back. Unlike read_recipe() it takes a recipe of unknown activation: a header does
// not always tell, and what is stored was read off a header.
std::array<std::byte, kRecipeBytes> stored_recipe(const Recipe& recipe);
Result<Recipe> parse_stored_recipe(ByteSpan bytes);

}  // namespace kvasir
