#include "gguf/recipe.h"

#include <fmt/format.h>

#include <cmath>
#include <vector>

namespace kvasir {
namespace {

constexpr std::uint8_t kVersion = 1;

// The flags in their bit order.
constexpr bool Recipe::*kFlags[] = {&Recipe::gated,    &Recipe::fused_gate_up, &Recipe::gate_bias,
                                    &Recipe::up_bias,  &Recipe::down_bias,     &Recipe::gate_scale,
                                    &Recipe::up_scale, &Recipe::down_scale};

bool known(std::uint8_t activation) {
    return activation <= static_cast<std::uint8_t>(Activation::swiglu_limited);
}

bool gated_only(Activation activation) {
    return activation == Activation::swiglu_oai || activation == Activation::swiglu_clamp ||
           activation == Activation::swiglu_limited;
}

std::string describe_activation(const Recipe& recipe) {
    switch (recipe.activation) {
        case Activation::silu:
            return recipe.gated ? "SwiGLU" : "SiLU";
        case Activation::gelu:
            return recipe.gated ? "GeGLU" : "GELU";
        case Activation::relu:
            return recipe.gated ? "ReGLU" : "ReLU";
        case Activation::relu_squared:
            return "ReLU²";
        case Activation::swiglu_oai:
            return fmt::format("SwiGLU-OAI(alpha {}, limit {})", recipe.alpha, recipe.limit);
        case Activation::swiglu_clamp:
            return fmt::format("SwiGLU-clamp(limit {})", recipe.limit);
        case Activation::swiglu_limited:
            return fmt::format("SwiGLU-limited(limit {})", recipe.limit);
        case Activation::unknown:
            break;
    }
    return "unknown activation";
}

// "biases" if all three tensors have one, "gate and down bias" otherwise.
std::string describe_parts(const Recipe& recipe, bool gate, bool up, bool down, std::string_view one,
                           std::string_view all) {
    std::vector<std::string_view> parts;
    const bool separate_gate = recipe.gated && !recipe.fused_gate_up;
    if (gate) parts.emplace_back("gate");
    if (up) parts.emplace_back(recipe.fused_gate_up ? "gate/up" : "up");
    if (down) parts.emplace_back("down");
    if (parts.empty()) return "";
    if (up && down && gate == separate_gate) return fmt::format(", {}", all);
    return fmt::format(", {} {}", fmt::join(parts, " and "), one);
}

}  // namespace

std::string describe(const Recipe& recipe) {
    return fmt::format(
        "{}{}{}{}", describe_activation(recipe), recipe.fused_gate_up ? ", fused gate/up" : "",
        describe_parts(recipe, recipe.gate_bias, recipe.up_bias, recipe.down_bias, "bias", "biases"),
        describe_parts(recipe, recipe.gate_scale, recipe.up_scale, recipe.down_scale, "scale", "scales"));
}

Status check(const Recipe& recipe) {
    const Activation activation = recipe.activation;
    if (!known(static_cast<std::uint8_t>(activation))) {
        return fail(ErrorKind::unsupported, "recipe: activation {} is unknown", static_cast<int>(activation));
    }
    if (!recipe.gated && (recipe.fused_gate_up || recipe.gate_bias || recipe.gate_scale)) {
        return fail(ErrorKind::invalid, "recipe: no gate, but something of a gate (fused, bias or scale)");
    }
    if (recipe.fused_gate_up && (recipe.gate_bias || recipe.gate_scale)) {
        return fail(ErrorKind::invalid, "recipe: fused gate/up has no gate bias or scale of its own");
    }
    if (!recipe.gated && gated_only(activation)) {
        return fail(ErrorKind::invalid, "recipe: {} needs a gate", describe_activation(recipe));
    }
    if (recipe.gated && activation == Activation::relu_squared) {
        return fail(ErrorKind::unsupported, "recipe: ReLU² with a gate is unknown");
    }
    if (!std::isfinite(recipe.alpha) || !std::isfinite(recipe.limit)) {
        return fail(ErrorKind::invalid, "recipe: a parameter is not finite");
    }
    if (gated_only(activation) ? recipe.limit <= 0.0F : recipe.limit != 0.0F) {
        return fail(ErrorKind::invalid, "recipe: limit {} does not fit {}", recipe.limit, describe_activation(recipe));
    }
    if (activation != Activation::swiglu_oai && recipe.alpha != 0.0F) {
        return fail(ErrorKind::invalid, "recipe: alpha {} does not fit {}", recipe.alpha, describe_activation(recipe));
    }
    return {};
}

void write_recipe(ByteWriter& writer, const Recipe& recipe) {
    unsigned flags = 0;
    unsigned bit = 1;
    for (const auto flag : kFlags) {
        if (recipe.*flag) flags |= bit;
        bit <<= 1U;
    }
    writer.write(static_cast<std::uint8_t>(recipe.activation));
    writer.write(static_cast<std::uint16_t>(flags));
    writer.write(kVersion);
    writer.write(recipe.alpha);
    writer.write(recipe.limit);
    writer.write(std::uint32_t{0});
}

Result<Recipe> read_recipe(ByteReader& reader) {
    const auto activation = reader.read<std::uint8_t>();
    const auto flags = reader.read<std::uint16_t>();
    const auto version = reader.read<std::uint8_t>();
    Recipe recipe;
    recipe.alpha = reader.read<float>();
    recipe.limit = reader.read<float>();
    const auto zero = reader.read<std::uint32_t>();
    if (reader.failed()) return fail(ErrorKind::invalid, "recipe: fewer than {} bytes", kRecipeBytes);
    if (version != kVersion) return fail(ErrorKind::unsupported, "recipe: version {} is unknown", version);
    if (!known(activation)) return fail(ErrorKind::unsupported, "recipe: activation {} is unknown", activation);
    if ((flags >> std::size(kFlags)) != 0)
        return fail(ErrorKind::unsupported, "recipe: flags {:#x} are unknown", flags);
    if (zero != 0) return fail(ErrorKind::unsupported, "recipe: its reserved bytes are {:#x}, not 0", zero);
    recipe.activation = static_cast<Activation>(activation);
    unsigned bit = 1;
    for (const auto flag : kFlags) {
        recipe.*flag = (flags & bit) != 0;
        bit <<= 1U;
    }
    if (Status valid = check(recipe); !valid) return fail(valid.error());
    return recipe;
}

}  // namespace kvasir
