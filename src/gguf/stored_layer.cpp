#include "gguf/stored_layer.h"

#include <algorithm>

namespace kvasir {

std::vector<Role> roles_of(const Recipe& recipe) {
    bool fused = recipe.fused_gate_up;
    bool separate_gate = recipe.gated && !fused;
    std::vector<Role> roles;
    auto add_if = [&](bool present, Role role) {
        if (present) roles.push_back(role);
    };
    add_if(separate_gate, Role::gate);
    add_if(!fused, Role::up);
    add_if(true, Role::down);
    add_if(fused, Role::gate_up);
    add_if(separate_gate && recipe.gate_bias, Role::gate_bias);
    add_if(!fused && recipe.up_bias, Role::up_bias);
    add_if(recipe.down_bias, Role::down_bias);
    add_if(fused && recipe.up_bias, Role::gate_up_bias);
    add_if(separate_gate && recipe.gate_scale, Role::gate_scale);
    add_if(recipe.up_scale, Role::up_scale);
    add_if(recipe.down_scale, Role::down_scale);
    return roles;
}

TensorShape expert_shape(Role role, std::uint64_t hidden, std::uint64_t ff, std::uint64_t experts) {
    switch (role) {
        case Role::gate:
        case Role::up:
            return {{hidden, ff, experts, 1}, 3};
        case Role::gate_up:
            return {{hidden, 2 * ff, experts, 1}, 3};
        case Role::down:
            return {{ff, hidden, experts, 1}, 3};
        case Role::gate_bias:
        case Role::up_bias:
            return {{ff, experts, 1, 1}, 2};
        case Role::gate_up_bias:
            return {{2 * ff, experts, 1, 1}, 2};
        case Role::down_bias:
            return {{hidden, experts, 1, 1}, 2};
        case Role::gate_scale:
        case Role::up_scale:
        case Role::down_scale:
            break;
    }
    return {{experts, 1, 1, 1}, 1};
}

std::array<std::byte, kRecipeBytes> stored_recipe(const Recipe& recipe) {
    ByteWriter writer;
    write_recipe(writer, recipe);
    std::array<std::byte, kRecipeBytes> bytes{};
    std::copy_n(writer.buffer().begin(), kRecipeBytes, bytes.begin());
    return bytes;
}

Result<Recipe> parse_stored_recipe(ByteSpan bytes) {
    if (bytes.size() != kRecipeBytes) {
        return fail(ErrorKind::invalid, "a recipe is {} bytes, not {}", kRecipeBytes, bytes.size());
    }
    ByteVector copy(bytes.begin(), bytes.end());
    bool unknown = copy[0] == static_cast<std::byte>(Activation::unknown);
    // A stand-in whose flags are checked like any other's; SiLU goes with a gate and without.
    if (unknown) copy[0] = static_cast<std::byte>(Activation::silu);
    ByteReader reader(copy);
    Result<Recipe> recipe = read_recipe(reader);
    if (recipe && unknown) recipe->activation = Activation::unknown;
    return recipe;
}

}  // namespace kvasir
