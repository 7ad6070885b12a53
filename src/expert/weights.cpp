// What a layer's tensors must look like before kernels, which trust what they are told (ggml aborts on contradictions),
// may see them.
#include <ggml-cpu.h>
#include <ggml.h>

#include <algorithm>
#include <cmath>

#include "expert/layer_weights.h"
#include "gguf/gguf_file.h"
#include "portable/types.h"

namespace kvasir {

namespace {

static_assert(static_cast<int>(portable::Form::f32) == static_cast<int>(RowEncoding::f32));
static_assert(static_cast<int>(portable::Form::q8x256) == static_cast<int>(RowEncoding::q8x256));
static_assert(static_cast<int>(portable::Form::q8x32) == static_cast<int>(RowEncoding::q8x32));

// Far above any model, far below what makes ggml's 32-bit row counts or our byte counts overflow.
constexpr std::uint64_t kLargestWidth = std::uint64_t{1} << 20;
constexpr std::uint32_t kLargestExpertCount = 1U << 16;

using Shape = std::array<std::uint64_t, 4>;

// Whether ggml's CPU backend has a row product for this weight type.
bool can_multiply(std::uint32_t type) {
    if (type >= GGML_TYPE_COUNT) return false;
    const auto ggml = static_cast<ggml_type>(type);
    if (ggml_blck_size(ggml) <= 0 || ggml_type_size(ggml) == 0) return false;
    const ggml_type_traits_cpu* traits = ggml_get_type_traits_cpu(ggml);
    if (traits == nullptr || traits->vec_dot == nullptr) return false;
    return traits->vec_dot_type == GGML_TYPE_F32 ||
           ggml_get_type_traits_cpu(traits->vec_dot_type)->from_float != nullptr;
}

std::string shape_text(const Shape& shape) {
    return fmt::format("[{}, {}, {}, {}]", shape[0], shape[1], shape[2], shape[3]);
}

Status check_common(Role role, const WeightView& view, const Shape& expected) {
    if (view.data == nullptr) return fail(ErrorKind::invalid, "{}: its bytes lie outside the file", role_name(role));
    if (view.shape != expected) {
        return fail(ErrorKind::invalid, "{}: shape {} instead of {}", role_name(role), shape_text(view.shape),
                    shape_text(expected));
    }
    if (reinterpret_cast<std::uintptr_t>(view.data) % alignof(float) != 0) {
        return fail(ErrorKind::invalid, "{}: not aligned to {} bytes", role_name(role), alignof(float));
    }
    return {};
}

Status check_portable_matrix(Role role, const WeightView& view, const Shape& expected) {
    if (view.type >= GGML_TYPE_COUNT || portable::find_traits(static_cast<ggml_type>(view.type)) == nullptr) {
        return fail(ErrorKind::unsupported, "{}: {} does not define weights of type {}", role_name(role),
                    portable::kName, type_name(view.type));
    }
    if (Status common = check_common(role, view, expected); !common) return common;
    const portable::Matrix matrix{static_cast<ggml_type>(view.type), view.shape[1], view.shape[0], view.data};
    if (Status defined = portable::check(matrix); !defined) return fail(defined.error().within(role_name(role)));
    return {};
}

Status check_ggml_matrix(Role role, const WeightView& view, const Shape& expected) {
    if (!can_multiply(view.type)) {
        return fail(ErrorKind::unsupported, "{}: ggml's CPU backend cannot multiply weights of type {}",
                    role_name(role), type_name(view.type));
    }
    Status common = check_common(role, view, expected);
    if (!common) return common;
    const auto type = static_cast<ggml_type>(view.type);
    const ggml_type dot_type = ggml_get_type_traits_cpu(type)->vec_dot_type;
    const std::int64_t block = std::max(ggml_blck_size(type), ggml_blck_size(dot_type));
    if (view.shape[0] % static_cast<std::uint64_t>(block) != 0) {
        return fail(ErrorKind::invalid, "{}: rows of {} numbers are not whole blocks of {} ({})", role_name(role),
                    view.shape[0], block, type_name(view.type));
    }
    return {};
}

Status check_floats(Role role, const WeightView& view, const Shape& expected) {
    if (view.type != GGML_TYPE_F32) {
        return fail(ErrorKind::unsupported, "{}: type {} instead of F32", role_name(role), type_name(view.type));
    }
    return check_common(role, view, expected);
}

bool gated_only(Activation activation) {
    return activation == Activation::swiglu_oai || activation == Activation::swiglu_clamp ||
           activation == Activation::swiglu_limited;
}

bool known(Activation activation) {
    switch (activation) {
        case Activation::silu:
        case Activation::gelu:
        case Activation::relu:
        case Activation::relu_squared:
        case Activation::swiglu_oai:
        case Activation::swiglu_clamp:
        case Activation::swiglu_limited:
            return true;
        case Activation::unknown:
            break;
    }
    return false;
}

Status check_combination(const Recipe& recipe) {
    if (!known(recipe.activation)) {
        return fail(ErrorKind::unsupported, "recipe: activation {} is unknown to this build",
                    static_cast<int>(recipe.activation));
    }
    if (gated_only(recipe.activation) && !(std::isfinite(recipe.limit) && recipe.limit > 0)) {
        return fail(ErrorKind::invalid, "recipe: a limit of {}", recipe.limit);
    }
    if (!std::isfinite(recipe.alpha)) return fail(ErrorKind::invalid, "recipe: alpha is not a number");
    if (recipe.gated && recipe.activation == Activation::relu_squared) {
        return fail(ErrorKind::unsupported, "recipe: squared ReLU with a gate");
    }
    if (!recipe.gated && gated_only(recipe.activation)) {
        return fail(ErrorKind::unsupported, "recipe: {} without a gate", describe(recipe));
    }
    if (recipe.fused_gate_up && !recipe.gated) return fail(ErrorKind::invalid, "recipe: fused gate/up without a gate");
    if ((recipe.gate_bias || recipe.gate_scale) && (recipe.fused_gate_up || !recipe.gated)) {
        return fail(ErrorKind::invalid, "recipe: a bias or scale of a gate that is fused or absent");
    }
    return {};
}

struct Expectation {
    Role role;
    bool wanted;
    bool matrix;
    Shape shape;
};

}  // namespace

LayerWeights view_weights(const ExpertLayer& layer, std::span<const ByteSpan> files) {
    LayerWeights weights{layer.hidden, layer.ff, layer.experts, {}};
    for (const ExpertTensor& tensor : layer.tensors) {
        WeightView view{tensor.info.type, tensor.info.shape, nullptr};
        if (tensor.info.file < files.size()) {
            ByteSpan file = files[tensor.info.file];
            const bool inside =
                tensor.info.offset <= file.size() && tensor.info.bytes <= file.size() - tensor.info.offset;
            if (inside) view.data = file.data() + tensor.info.offset;
        }
        weights.tensors[static_cast<std::size_t>(tensor.role)] = view;
    }
    return weights;
}

RowEncoding input_encoding(Arithmetic arithmetic, const LayerWeights& weights) {
    if (arithmetic != Arithmetic::portable) return RowEncoding::f32;
    std::optional<portable::Form> form;
    for (Role role : {Role::gate, Role::up, Role::gate_up}) {
        if (!weights[role]) continue;
        const portable::Form wanted = portable::traits(static_cast<ggml_type>(weights[role]->type)).form;
        if (form && *form != wanted) return RowEncoding::f32;  // each matrix quantises it for itself
        form = wanted;
    }
    return static_cast<RowEncoding>(form.value_or(portable::Form::f32));
}

RowEncoding output_encoding(Arithmetic arithmetic) {
    return arithmetic == Arithmetic::portable ? RowEncoding::i16x256 : RowEncoding::f32;
}

Status check_recipe(Arithmetic arithmetic, const Recipe& recipe, const LayerWeights& weights) {
    Status combination = check_combination(recipe);
    if (!combination) return combination;
    if (weights.hidden == 0 || weights.ff == 0 || weights.hidden > kLargestWidth || weights.ff > kLargestWidth ||
        weights.experts == 0 || weights.experts > kLargestExpertCount) {
        return fail(ErrorKind::invalid, "impossible geometry: {} columns, {} inner columns, {} experts", weights.hidden,
                    weights.ff, weights.experts);
    }
    const bool fused = recipe.fused_gate_up;
    const std::uint64_t up_width = fused ? 2 * weights.ff : weights.ff;
    const std::uint64_t experts = weights.experts;
    const Shape in = {weights.hidden, weights.ff, experts, 1};
    const Shape per_expert = {experts, 1, 1, 1};
    const std::array<Expectation, kRoleCount> expectations = {{
        {Role::gate, recipe.gated && !fused, true, in},
        {Role::up, !fused, true, in},
        {Role::down, true, true, {weights.ff, weights.hidden, experts, 1}},
        {Role::gate_up, fused, true, {weights.hidden, up_width, experts, 1}},
        {Role::gate_bias, recipe.gate_bias, false, {weights.ff, experts, 1, 1}},
        {Role::up_bias, recipe.up_bias && !fused, false, {weights.ff, experts, 1, 1}},
        {Role::down_bias, recipe.down_bias, false, {weights.hidden, experts, 1, 1}},
        {Role::gate_up_bias, recipe.up_bias && fused, false, {up_width, experts, 1, 1}},
        {Role::gate_scale, recipe.gate_scale, false, per_expert},
        {Role::up_scale, recipe.up_scale, false, per_expert},
        {Role::down_scale, recipe.down_scale, false, per_expert},
    }};
    for (const Expectation& expected : expectations) {
        const std::optional<WeightView>& view = weights[expected.role];
        if (expected.wanted && !view) {
            return fail(ErrorKind::invalid, "the recipe needs {}, which these weights lack", role_name(expected.role));
        }
        if (!expected.wanted && view) {
            return fail(ErrorKind::invalid, "the weights have {}, which the recipe leaves out",
                        role_name(expected.role));
        }
        if (!view) continue;
        const auto check_matrix = arithmetic == Arithmetic::portable ? check_portable_matrix : check_ggml_matrix;
        const auto check = expected.matrix ? check_matrix : check_floats;
        if (Status checked = check(expected.role, *view, expected.shape); !checked) return checked;
    }
    return {};
}

}  // namespace kvasir
