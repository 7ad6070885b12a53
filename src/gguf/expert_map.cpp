#include "gguf/expert_map.h"

#include <ggml.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>

namespace kvasir {
namespace {

constexpr std::uint32_t kMaxNumber = 1'000'000;

struct RoleInfo {
    Role role;
    const char* name;
    const char* tensor;  // after "blk.N."
};

constexpr std::array<RoleInfo, kRoleCount> kRoles = {{
    {Role::gate, "gate", "ffn_gate_exps.weight"},
    {Role::up, "up", "ffn_up_exps.weight"},
    {Role::down, "down", "ffn_down_exps.weight"},
    {Role::gate_up, "gate_up", "ffn_gate_up_exps.weight"},
    {Role::gate_bias, "gate_bias", "ffn_gate_exps.bias"},
    {Role::up_bias, "up_bias", "ffn_up_exps.bias"},
    {Role::down_bias, "down_bias", "ffn_down_exps.bias"},
    {Role::gate_up_bias, "gate_up_bias", "ffn_gate_up_exps.bias"},
    {Role::gate_scale, "gate_scale", "ffn_gate_exps.scale"},
    {Role::up_scale, "up_scale", "ffn_up_exps.scale"},
    {Role::down_scale, "down_scale", "ffn_down_exps.scale"},
}};

struct ArchitectureActivation {
    std::string_view architecture;
    Activation activation;
};

// What llama.cpp v0.5.0's src/models/*.cpp give to build_moe_ffn().
constexpr ArchitectureActivation kActivations[] = {
    {"afmoe", Activation::silu},
    {"arctic", Activation::silu},
    {"bailingmoe", Activation::silu},
    {"bailingmoe2", Activation::silu},
    {"bailingmoe3", Activation::silu},
    {"cohere2moe", Activation::silu},
    {"dbrx", Activation::silu},
    {"deepseek", Activation::silu},
    {"deepseek2", Activation::silu},
    {"deepseek2-ocr", Activation::silu},
    {"deepseek32", Activation::silu},
    {"deepseek4", Activation::silu},
    {"dflash", Activation::silu},
    {"dots1", Activation::silu},
    {"dots3note", Activation::silu},
    {"ernie4_5-moe", Activation::silu},
    {"exaone-moe", Activation::silu},
    {"gemma4", Activation::gelu},
    {"glm-dsa", Activation::silu},
    {"glm4moe", Activation::silu},
    {"gpt-oss", Activation::swiglu_oai},
    {"granite", Activation::silu},
    {"granite_swa", Activation::silu},
    {"granitehybrid", Activation::silu},
    {"granitemoe", Activation::silu},
    {"grok", Activation::gelu},
    {"grovemoe", Activation::silu},
    {"hunyuan-moe", Activation::silu},
    {"hy_v3", Activation::silu},
    {"hy_v4", Activation::silu},
    {"jamba", Activation::silu},
    {"kimi-linear", Activation::silu},
    {"laguna", Activation::silu},
    {"lfm2moe", Activation::silu},
    {"llada-moe", Activation::silu},
    {"llama", Activation::silu},
    {"llama-embed", Activation::silu},
    {"llama4", Activation::silu},
    {"maple", Activation::silu},
    {"mellum", Activation::silu},
    {"mimo2", Activation::silu},
    {"minicpm", Activation::silu},
    {"minimax-01", Activation::silu},
    {"minimax-m2", Activation::silu},
    {"minimax-m3", Activation::swiglu_oai},
    {"mistral3", Activation::silu},
    {"mistral4", Activation::silu},
    {"nemotron_h", Activation::relu_squared},
    {"nemotron_h_moe", Activation::relu_squared},
    {"nomic-bert-moe", Activation::gelu},
    {"olmoe", Activation::silu},
    {"phimoe", Activation::silu},
    {"qwen2moe", Activation::silu},
    {"qwen35moe", Activation::silu},
    {"qwen3moe", Activation::silu},
    {"qwen3next", Activation::silu},
    {"qwen3vlmoe", Activation::silu},
    {"qwen4exp", Activation::silu},
    {"rnd1", Activation::silu},
    {"smallthinker", Activation::relu},
    {"step35", Activation::silu},
};

// Architectures for which llama.cpp reads "<architecture>.swiglu_clamp_exp", and what it does with it.
constexpr ArchitectureActivation kClamps[] = {
    {"bailingmoe3", Activation::swiglu_limited}, {"deepseek4", Activation::swiglu_clamp},
    {"dflash", Activation::swiglu_clamp},        {"hy_v4", Activation::swiglu_clamp},
    {"maple", Activation::swiglu_clamp},         {"step35", Activation::swiglu_limited},
};

constexpr float kOaiAlpha = 1.702F;
constexpr float kOaiLimit = 7.0F;
constexpr float kNoClamp = 1e-6F;  // limits up to this mean none

Activation look_up(std::span<const ArchitectureActivation> table, std::string_view architecture) {
    for (const ArchitectureActivation& entry : table) {
        if (entry.architecture == architecture) return entry.activation;
    }
    return Activation::unknown;
}

// Takes a number of up to kMaxNumber off the front of `text`.
std::optional<std::uint32_t> take_number(std::string_view& text) {
    std::uint32_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc{} || number > kMaxNumber) return std::nullopt;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    return number;
}

bool take_prefix(std::string_view& text, std::string_view prefix) {
    if (!text.starts_with(prefix)) return false;
    text.remove_prefix(prefix.size());
    return true;
}

float clamp_limit(const GgufModel& model, std::uint32_t layer) {
    const auto found = model.metadata().find(model.architecture() + ".swiglu_clamp_exp");
    if (found == model.metadata().end()) return 0;
    if (const auto* array = std::get_if<GgufArray>(&found->second)) {
        return layer < array->numbers.size() ? static_cast<float>(array->numbers[layer]) : 0;
    }
    return static_cast<float>(model.number(found->first).value_or(0));
}

// The activation and its parameters; the recipe's flags are set already.
void set_activation(Recipe& recipe, const GgufModel& model, std::uint32_t layer) {
    recipe.activation = architecture_activation(model.architecture());
    if (recipe.activation == Activation::swiglu_oai) {
        recipe.alpha = kOaiAlpha;
        recipe.limit = kOaiLimit;
    }
    // llama.cpp clamps where gate and up are separate, and only there.
    const Activation clamped = look_up(kClamps, model.architecture());
    if (clamped != Activation::unknown && recipe.gated && !recipe.fused_gate_up) {
        if (const float limit = clamp_limit(model, layer); limit > kNoClamp) {
            recipe.activation = clamped;
            recipe.limit = limit;
        }
    }
    if (!check(recipe)) {  // such as ReLU² with a gate, which llama.cpp does not compute either
        recipe.activation = Activation::unknown;
        recipe.alpha = 0;
        recipe.limit = 0;
    }
}

Recipe recipe_of(const ExpertLayer& layer, const GgufModel& model) {
    const auto has = [&](Role role) { return layer.find(role) != nullptr; };
    Recipe recipe;
    recipe.fused_gate_up = has(Role::gate_up);
    recipe.gated = recipe.fused_gate_up || has(Role::gate);
    recipe.gate_bias = has(Role::gate_bias);
    recipe.up_bias = has(Role::up_bias) || has(Role::gate_up_bias);
    recipe.down_bias = has(Role::down_bias);
    recipe.gate_scale = has(Role::gate_scale);
    recipe.up_scale = has(Role::up_scale);
    recipe.down_scale = has(Role::down_scale);
    set_activation(recipe, model, layer.layer);
    return recipe;
}

bool is_weight(Role role) {
    return role <= Role::gate_up;
}
bool is_scale(Role role) {
    return role >= Role::gate_scale;
}

std::string show_shape(const TensorInfo& tensor) {
    return fmt::format("[{}]", fmt::join(tensor.shape.begin(), tensor.shape.begin() + tensor.dimensions, ", "));
}

// Which tensors a layer has is possible at all.
Status check_roles(const ExpertLayer& layer) {
    const auto has = [&](Role role) { return layer.find(role) != nullptr; };
    const auto refuse = [&](Role role, std::string_view why) -> Status {
        return fail(ErrorKind::invalid, "{}: {}", layer.find(role)->info.name, why);
    };
    if (!has(Role::down)) {
        return fail(ErrorKind::invalid, "layer {} has routed experts without {}", layer.layer,
                    expert_tensor_name(layer.layer, Role::down));
    }
    if (!has(Role::up) && !has(Role::gate_up)) return refuse(Role::down, "its layer has no ffn_up_exps");
    if (has(Role::gate_up) && (has(Role::gate) || has(Role::up))) {
        return refuse(Role::gate_up, "its layer has separate gate or up tensors as well");
    }
    constexpr std::pair<Role, Role> kNeeds[] = {{Role::gate_bias, Role::gate},
                                                {Role::up_bias, Role::up},
                                                {Role::gate_up_bias, Role::gate_up},
                                                {Role::gate_scale, Role::gate}};
    for (const auto& [part, weight] : kNeeds) {
        if (has(part) && !has(weight)) {
            return refuse(part, fmt::format("there is no {}", expert_tensor_name(layer.layer, weight)));
        }
    }
    return {};
}

// What a role's tensor must look like without its expert dimension: {columns, rows}, 1 where there is no such
// dimension.
std::array<std::uint64_t, 2> expected_shape(Role role, std::uint64_t hidden, std::uint64_t ff) {
    switch (role) {
        case Role::gate:
        case Role::up:
            return {hidden, ff};
        case Role::gate_up:
            return {hidden, 2 * ff};
        case Role::down:
            return {ff, hidden};
        case Role::gate_bias:
        case Role::up_bias:
            return {ff, 1};
        case Role::gate_up_bias:
            return {2 * ff, 1};
        case Role::down_bias:
            return {hidden, 1};
        default:
            return {1, 1};
    }
}

// Index of the expert dimension.
std::size_t expert_dimension(Role role) {
    if (is_weight(role)) return 2;
    return is_scale(role) ? 0 : 1;
}

Status check_tensor(ExpertTensor& tensor, const ExpertLayer& layer) {
    const TensorInfo& info = tensor.info;
    const std::size_t outer = expert_dimension(tensor.role);
    const std::array<std::uint64_t, 2> inner = expected_shape(tensor.role, layer.hidden, layer.ff);
    std::array<std::uint64_t, 4> wanted = {1, 1, 1, 1};
    for (std::size_t i = 0; i < outer; ++i)
        wanted[i] = inner[i];
    wanted[outer] = layer.experts;
    if (info.shape[outer] != layer.experts) {
        return fail(ErrorKind::invalid, "{} {} is for {} experts, its layer's down tensor for {}", info.name,
                    show_shape(info), info.shape[outer], layer.experts);
    }
    if (info.shape != wanted) {
        return fail(ErrorKind::invalid, "{} {} does not fit hidden {}, ff {} and {} experts", info.name,
                    show_shape(info), layer.hidden, layer.ff, layer.experts);
    }
    if (!is_weight(tensor.role) && info.type != GGML_TYPE_F32) {
        return fail(ErrorKind::unsupported, "{}: biases and scales must be F32, this is {}", info.name,
                    type_name(info.type));
    }
    if (info.bytes % layer.experts != 0) {
        return fail(ErrorKind::invalid, "{}: {} bytes do not divide by {} experts", info.name, info.bytes,
                    layer.experts);
    }
    tensor.slab_bytes = info.bytes / layer.experts;
    return {};
}

// Geometry from the down tensor; all others must agree with it.
Status complete_layer(ExpertLayer& layer, const GgufModel& model) {
    std::sort(layer.tensors.begin(), layer.tensors.end(),
              [](const ExpertTensor& a, const ExpertTensor& b) { return a.role < b.role; });
    if (Status roles = check_roles(layer); !roles) return roles;
    const TensorInfo& down = layer.find(Role::down)->info;
    if (down.shape[2] > kMaxNumber) {
        return fail(ErrorKind::invalid, "{} {}: more than {} experts", down.name, show_shape(down), kMaxNumber);
    }
    layer.ff = down.shape[0];
    layer.hidden = down.shape[1];
    layer.experts = static_cast<std::uint32_t>(down.shape[2]);
    for (ExpertTensor& tensor : layer.tensors) {
        if (Status fits = check_tensor(tensor, layer); !fits) return fits;
    }
    layer.recipe = recipe_of(layer, model);
    return {};
}

Result<std::map<std::uint32_t, ExpertLayer>> collect_layers(const GgufModel& model) {
    std::map<std::uint32_t, ExpertLayer> layers;
    for (const TensorInfo& info : model.tensors()) {
        const std::optional<ExpertTensorName> name = parse_expert_tensor_name(info.name);
        if (!name) continue;
        if (name->piece != 0) {
            return fail(ErrorKind::unsupported, "{}: this is a slice of several pieces, not a model", info.name);
        }
        ExpertLayer& layer = layers[name->layer];
        layer.layer = name->layer;
        if (layer.find(name->role) != nullptr) {
            return fail(ErrorKind::invalid, "{}: its layer has a second tensor for the same use", info.name);
        }
        layer.tensors.push_back({.role = name->role, .info = info});
    }
    return layers;
}

}  // namespace

const char* role_name(Role role) {
    for (const RoleInfo& info : kRoles) {
        if (info.role == role) return info.name;
    }
    return "unknown";
}

std::optional<ExpertTensorName> parse_expert_tensor_name(std::string_view name) {
    if (!take_prefix(name, "blk.")) return std::nullopt;
    const std::optional<std::uint32_t> layer = take_number(name);
    if (!layer || !take_prefix(name, ".")) return std::nullopt;
    for (const RoleInfo& info : kRoles) {
        std::string_view rest = name;
        if (!take_prefix(rest, info.tensor)) continue;
        if (rest.empty()) return ExpertTensorName{*layer, info.role, 0};
        if (!take_prefix(rest, ".")) continue;
        const std::optional<std::uint32_t> piece = take_number(rest);
        if (piece && *piece > 0 && rest.empty()) return ExpertTensorName{*layer, info.role, *piece};
    }
    return std::nullopt;
}

std::string expert_tensor_name(std::uint32_t layer, Role role) {
    return fmt::format("blk.{}.{}", layer, kRoles.at(static_cast<std::size_t>(role)).tensor);
}

Activation architecture_activation(std::string_view architecture) {
    return look_up(kActivations, architecture);
}

const ExpertTensor* ExpertLayer::find(Role role) const {
    const auto found =
        std::find_if(tensors.begin(), tensors.end(), [&](const ExpertTensor& tensor) { return tensor.role == role; });
    return found == tensors.end() ? nullptr : &*found;
}

std::uint64_t ExpertLayer::expert_bytes() const {
    std::uint64_t bytes = 0;
    for (const ExpertTensor& tensor : tensors)
        bytes += tensor.slab_bytes;
    return bytes;
}

const ExpertLayer* ExpertMap::find(std::uint32_t layer) const {
    const auto found =
        std::find_if(layers.begin(), layers.end(), [&](const ExpertLayer& entry) { return entry.layer == layer; });
    return found == layers.end() ? nullptr : &*found;
}

std::uint64_t ExpertMap::expert_count() const {
    std::uint64_t count = 0;
    for (const ExpertLayer& layer : layers)
        count += layer.experts;
    return count;
}

Result<ExpertMap> map_experts(const GgufModel& model) {
    Result<std::map<std::uint32_t, ExpertLayer>> layers = collect_layers(model);
    if (!layers) return fail(layers.error());
    ExpertMap map;
    map.architecture = model.architecture();
    map.name = model.text("general.name").value_or(model.files().at(0).path.stem().string());
    map.block_count = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(model.hyperparameter("block_count").value_or(0), kMaxNumber));
    map.experts_used = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(model.hyperparameter("expert_used_count").value_or(0), kMaxNumber));
    map.hidden = model.hyperparameter("embedding_length").value_or(0);
    for (const TensorInfo& tensor : model.tensors())
        map.model_bytes += tensor.bytes;
    for (auto& [number, layer] : *layers) {
        if (Status complete = complete_layer(layer, model); !complete) return fail(complete.error());
        for (const ExpertTensor& tensor : layer.tensors)
            map.expert_bytes += tensor.info.bytes;
        map.layers.push_back(std::move(layer));
    }
    return map;
}

}  // namespace kvasir
