#include "backbone/expert_group.h"

#include <fmt/format.h>
#include <ggml.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <optional>
#include <string_view>

// ggml-impl.h defines ggml_cgraph; it is internal to ggml, as is the backend interface (pinned, see cmake/llama.cmake).
#include "ggml-impl.h"

namespace kvasir {
namespace {

float float_parameter(const ggml_tensor* node, int index) {
    float value = 0;
    std::memcpy(&value, node->op_params + index, sizeof(value));
    return value;
}

bool is_unary(const ggml_tensor* node, ggml_unary_op op) {
    return node->op == GGML_OP_UNARY && ggml_get_unary_op(node) == op;
}

bool has_shape(const ggml_tensor* tensor, std::int64_t a, std::int64_t b, std::int64_t c) {
    return tensor->ne[0] == a && tensor->ne[1] == b && tensor->ne[2] == c && tensor->ne[3] == 1;
}

// weight, then scale, then bias.
struct Projection {
    const ggml_tensor* weight = nullptr;
    const ggml_tensor* scale = nullptr;
    const ggml_tensor* bias = nullptr;
    const ggml_tensor* input = nullptr;
    std::int64_t width = 0;  // of its output rows
};

// The activation's operands.
struct Activated {
    const ggml_tensor* gate = nullptr;  // null: ungated
    const ggml_tensor* up = nullptr;
};

// Nodes that compute nothing.
bool is_view_op(const ggml_tensor* node) {
    return node->op == GGML_OP_NONE || node->op == GGML_OP_RESHAPE || node->op == GGML_OP_VIEW ||
           node->op == GGML_OP_PERMUTE || node->op == GGML_OP_TRANSPOSE;
}

// Matches one group backwards from its down projection. Every tensor it passes is noted together with how often the
// group itself reads it, to be compared with the graph's use counts.
class GroupMatcher {
  public:
    GroupMatcher(const ggml_cgraph& graph, const ggml_tensor* down) : graph_(graph), down_(down) {}

    Result<ExpertGroup> match();

  private:
    struct Member {
        const ggml_tensor* node;
        int uses;
    };

    // Notes that the group reads `node`.
    void use(const ggml_tensor* node);
    const ggml_tensor* find_end() const;
    Result<Projection> match_projection(const ggml_tensor* end);
    Result<const ggml_tensor*> match_scale(const ggml_tensor* scale);
    Status match_ids(const ggml_tensor* ids);
    Result<Activated> match_activation(const ggml_tensor* node);
    Result<Activated> match_glu(const ggml_tensor* node);
    Result<Activated> match_limited(const ggml_tensor* node);
    Status match_inputs(const Activated& activated);
    Status match_fused(const Activated& activated);
    void set_projection(const Projection& projection, Role weight, Role scale, Role bias);
    Status check_shapes() const;
    Status check_weight(Role role, std::int64_t columns, std::int64_t rows) const;
    Status check_per_expert(Role role, std::int64_t columns) const;
    Status check_members();
    int index_of(const ggml_tensor* node) const;
    int graph_uses(const ggml_tensor* node) const;

    const ggml_cgraph& graph_;
    const ggml_tensor* down_;
    ExpertGroup group_;
    std::int64_t ff_ = 0;
    std::vector<Member> members_;
};

void GroupMatcher::use(const ggml_tensor* node) {
    auto found = std::find_if(members_.begin(), members_.end(), [&](const Member& m) { return m.node == node; });
    if (found == members_.end()) {
        members_.push_back({node, 1});
    } else {
        ++found->uses;
    }
}

int GroupMatcher::index_of(const ggml_tensor* node) const {
    for (int i = 0; i < graph_.n_nodes; ++i) {
        if (graph_.nodes[i] == node) return i;
    }
    return -1;
}

int GroupMatcher::graph_uses(const ggml_tensor* node) const {
    std::size_t slot = ggml_hash_find(&graph_.visited_hash_set, node);
    if (slot == GGML_HASHSET_FULL || !ggml_bitset_get(graph_.visited_hash_set.used, slot)) return -1;
    return graph_.use_counts[slot];
}

// The group's last tensor: the down projection with what scale and bias follow it.
const ggml_tensor* GroupMatcher::find_end() const {
    const ggml_tensor* end = down_;
    for (int i = index_of(down_) + 1; i < graph_.n_nodes; ++i) {
        const ggml_tensor* node = graph_.nodes[i];
        if (node->src[0] != end) continue;
        bool scales = node->op == GGML_OP_MUL && end == down_ && is_expert_scale(node->src[1]);
        bool adds_bias = node->op == GGML_OP_ADD_ID && end->op != GGML_OP_ADD_ID;
        if (scales || adds_bias) end = node;
    }
    return end;
}

Status GroupMatcher::match_ids(const ggml_tensor* ids) {
    if (group_.ids == nullptr) group_.ids = ids;
    if (group_.ids != ids) return fail(ErrorKind::unsupported, "its parts select experts by different ids");
    return {};
}

Result<const ggml_tensor*> GroupMatcher::match_scale(const ggml_tensor* scale) {
    if (!is_expert_scale(scale)) {
        return fail(ErrorKind::unsupported, "it multiplies by '{}', which is no per-expert scale", scale->name);
    }
    const ggml_tensor* repeat = scale->src[0];
    const ggml_tensor* reshape = repeat->src[0];
    use(scale);
    use(repeat);
    use(reshape);
    if (Status same = match_ids(scale->src[1]); !same) return fail(same.error());
    return reshape->src[0];
}

Result<Projection> GroupMatcher::match_projection(const ggml_tensor* end) {
    Projection projection;
    projection.width = end->ne[0];
    const ggml_tensor* node = end;
    if (node->op == GGML_OP_ADD_ID) {
        projection.bias = node->src[1];
        if (Status same = match_ids(node->src[2]); !same) return fail(same.error());
        node = node->src[0];
        use(node);
    }
    if (node->op == GGML_OP_MUL) {
        Result<const ggml_tensor*> scale = match_scale(node->src[1]);
        if (!scale) return fail(scale.error());
        projection.scale = *scale;
        node = node->src[0];
        use(node);
    }
    if (node->op != GGML_OP_MUL_MAT_ID) {
        return fail(ErrorKind::unsupported, "it has {} ('{}') where a MUL_MAT_ID is expected", ggml_op_desc(node),
                    node->name);
    }
    projection.weight = node->src[0];
    projection.input = node->src[1];
    if (Status same = match_ids(node->src[2]); !same) return fail(same.error());
    return projection;
}

Result<Activated> GroupMatcher::match_glu(const ggml_tensor* node) {
    if (node->src[1] == nullptr || node->op_params[1] != 0) {
        return fail(ErrorKind::unsupported, "its GLU has its halves in one tensor or swapped");
    }
    Recipe& recipe = group_.recipe;
    switch (ggml_get_glu_op(node)) {
        case GGML_GLU_OP_SWIGLU:
            recipe.activation = Activation::silu;
            break;
        case GGML_GLU_OP_GEGLU:
            recipe.activation = Activation::gelu;
            break;
        case GGML_GLU_OP_REGLU:
            recipe.activation = Activation::relu;
            break;
        case GGML_GLU_OP_SWIGLU_OAI:
            recipe.activation = Activation::swiglu_oai;
            recipe.alpha = float_parameter(node, 2);
            recipe.limit = float_parameter(node, 3);
            break;
        case GGML_GLU_OP_SWIGLU_CLAMP:
            recipe.activation = Activation::swiglu_clamp;
            recipe.limit = float_parameter(node, 3);
            break;
        default:
            return fail(ErrorKind::unsupported, "its activation is {}", ggml_op_desc(node));
    }
    return Activated{node->src[0], node->src[1]};
}

// min(silu(gate), limit) * clamp(up, -limit, limit)
Result<Activated> GroupMatcher::match_limited(const ggml_tensor* node) {
    const ggml_tensor* gate = node->src[0];
    const ggml_tensor* up = node->src[1];
    bool shaped = gate->op == GGML_OP_CLAMP && up->op == GGML_OP_CLAMP && is_unary(gate->src[0], GGML_UNARY_OP_SILU);
    if (!shaped) return fail(ErrorKind::unsupported, "its activation is an unknown product ('{}')", node->name);
    float limit = float_parameter(gate, 1);
    bool limits = float_parameter(gate, 0) == -INFINITY && float_parameter(up, 0) == -limit &&
                  float_parameter(up, 1) == limit && limit > 0 && std::isfinite(limit);
    if (!limits) return fail(ErrorKind::unsupported, "its clamps have unknown limits ('{}')", node->name);
    use(gate);
    use(gate->src[0]);
    use(up);
    group_.recipe.activation = Activation::swiglu_limited;
    group_.recipe.limit = limit;
    return Activated{gate->src[0]->src[0], up->src[0]};
}

Result<Activated> GroupMatcher::match_activation(const ggml_tensor* node) {
    use(node);
    if (node->op == GGML_OP_GLU) return match_glu(node);
    if (node->op == GGML_OP_MUL) return match_limited(node);
    group_.recipe.gated = false;
    Recipe& recipe = group_.recipe;
    if (is_unary(node, GGML_UNARY_OP_SILU)) {
        recipe.activation = Activation::silu;
    } else if (is_unary(node, GGML_UNARY_OP_GELU)) {
        recipe.activation = Activation::gelu;
    } else if (is_unary(node, GGML_UNARY_OP_RELU)) {
        recipe.activation = Activation::relu;
    } else if (node->op == GGML_OP_SQR && is_unary(node->src[0], GGML_UNARY_OP_RELU)) {
        recipe.activation = Activation::relu_squared;
        node = node->src[0];
        use(node);
    } else {
        return fail(ErrorKind::unsupported, "its activation is {} ('{}')", ggml_op_desc(node), node->name);
    }
    return Activated{nullptr, node->src[0]};
}

void GroupMatcher::set_projection(const Projection& projection, Role weight, Role scale, Role bias) {
    auto set = [&](Role role, const ggml_tensor* tensor) { group_.weights[static_cast<std::size_t>(role)] = tensor; };
    set(weight, projection.weight);
    set(scale, projection.scale);
    set(bias, projection.bias);
}

// gate and up are the two halves of one projection's rows.
Status GroupMatcher::match_fused(const Activated& activated) {
    const ggml_tensor* gate = activated.gate;
    const ggml_tensor* up = activated.up;
    const ggml_tensor* both = gate->src[0];
    if (up->op != GGML_OP_VIEW || up->src[0] != both || both->view_src != nullptr) {
        return fail(ErrorKind::unsupported, "its gate and up are views of different tensors");
    }
    ff_ = gate->ne[0];
    std::size_t half = static_cast<std::size_t>(ff_) * sizeof(float);
    for (const ggml_tensor* view : {gate, up}) {
        bool shaped = has_shape(view, ff_, both->ne[1], both->ne[2]) && both->ne[0] == 2 * ff_ &&
                      view->nb[1] == both->nb[1] && view->nb[2] == both->nb[2];
        if (!shaped || view->view_offs != (view == up ? half : 0)) {
            return fail(ErrorKind::unsupported, "its gate and up are not the two halves of '{}'", both->name);
        }
        use(view);
        use(both);
    }
    Result<Projection> projection = match_projection(both);
    if (!projection) return fail(projection.error());
    group_.recipe.fused_gate_up = true;
    set_projection(*projection, Role::gate_up, Role::up_scale, Role::gate_up_bias);
    group_.rows = projection->input;
    return {};
}

Status GroupMatcher::match_inputs(const Activated& activated) {
    if (activated.gate != nullptr && activated.gate->op == GGML_OP_VIEW) return match_fused(activated);
    use(activated.up);
    Result<Projection> up = match_projection(activated.up);
    if (!up) return fail(up.error());
    ff_ = up->width;
    set_projection(*up, Role::up, Role::up_scale, Role::up_bias);
    group_.rows = up->input;
    if (activated.gate == nullptr) return {};
    use(activated.gate);
    Result<Projection> gate = match_projection(activated.gate);
    if (!gate) return fail(gate.error());
    set_projection(*gate, Role::gate, Role::gate_scale, Role::gate_bias);
    if (gate->input != up->input) return fail(ErrorKind::unsupported, "its gate and up read different rows");
    return {};
}

Status GroupMatcher::check_weight(Role role, std::int64_t columns, std::int64_t rows) const {
    const ggml_tensor* weight = group_[role];
    if (weight == nullptr) return {};
    if (!has_shape(weight, columns, rows, group_.experts()) || !ggml_is_contiguous(weight)) {
        return fail(ErrorKind::unsupported, "'{}' has an unexpected shape or layout", weight->name);
    }
    return {};
}

Status GroupMatcher::check_per_expert(Role role, std::int64_t columns) const {
    const ggml_tensor* tensor = group_[role];
    if (tensor == nullptr) return {};
    std::int64_t experts = group_.experts();
    bool shaped = columns == 1 ? has_shape(tensor, experts, 1, 1) : has_shape(tensor, columns, experts, 1);
    if (!shaped || tensor->type != GGML_TYPE_F32 || !ggml_is_contiguous(tensor)) {
        return fail(ErrorKind::unsupported, "'{}' has an unexpected shape or type", tensor->name);
    }
    return {};
}

Status GroupMatcher::check_shapes() const {
    std::int64_t slots = group_.ids->ne[0];
    std::int64_t tokens = group_.ids->ne[1];
    std::int64_t hidden = group_.rows->ne[0];
    bool rows = group_.rows->type == GGML_TYPE_F32 && group_.rows->nb[0] == sizeof(float) &&
                (has_shape(group_.rows, hidden, 1, tokens) || has_shape(group_.rows, hidden, slots, tokens));
    if (!rows) return fail(ErrorKind::unsupported, "its hidden rows '{}' have an unexpected shape", group_.rows->name);
    bool ids = group_.ids->type == GGML_TYPE_I32 && group_.ids->nb[0] == sizeof(std::int32_t) &&
               has_shape(group_.ids, slots, tokens, 1);
    if (!ids) return fail(ErrorKind::unsupported, "its expert ids '{}' have an unexpected shape", group_.ids->name);
    const ggml_tensor* out = group_.out;
    bool written = out->type == GGML_TYPE_F32 && ggml_is_contiguous(out) && has_shape(out, hidden, slots, tokens);
    if (!written) return fail(ErrorKind::unsupported, "its output '{}' has an unexpected shape", out->name);
    struct Expected {
        Role role;
        std::int64_t columns;
        std::int64_t rows;
    };
    for (Expected e : {Expected{Role::gate, hidden, ff_}, Expected{Role::up, hidden, ff_},
                       Expected{Role::gate_up, hidden, 2 * ff_}, Expected{Role::down, ff_, hidden}}) {
        if (Status shaped = check_weight(e.role, e.columns, e.rows); !shaped) return shaped;
    }
    for (Expected e :
         {Expected{Role::gate_bias, ff_, 0}, Expected{Role::up_bias, ff_, 0}, Expected{Role::gate_up_bias, 2 * ff_, 0},
          Expected{Role::down_bias, hidden, 0}, Expected{Role::gate_scale, 1, 0}, Expected{Role::up_scale, 1, 0},
          Expected{Role::down_scale, 1, 0}}) {
        if (Status shaped = check_per_expert(e.role, e.columns); !shaped) return shaped;
    }
    return {};
}

// The members are all here and marked for computing, nobody else reads them, and nothing else lies between them.
Status GroupMatcher::check_members() {
    group_.last = index_of(group_.out);
    group_.first = group_.last;
    for (const Member& member : members_) {
        const ggml_tensor* node = member.node;
        if (!is_view_op(node)) {
            int index = index_of(node);
            if (index < 0) return fail(ErrorKind::unsupported, "'{}' is not in the same part of the graph", node->name);
            if (index > group_.last) {
                return fail(ErrorKind::unsupported, "'{}' is computed after what reads it", node->name);
            }
            if ((node->flags & GGML_TENSOR_FLAG_COMPUTE) == 0) {
                return fail(ErrorKind::unsupported, "'{}' is not marked for computing", node->name);
            }
            group_.first = std::min(group_.first, index);
        }
        if (node == group_.out) continue;
        if (graph_uses(node) != member.uses || (node->flags & GGML_TENSOR_FLAG_OUTPUT) != 0) {
            return fail(ErrorKind::unsupported, "'{}' is also read by something else", node->name);
        }
    }
    for (int i = group_.first; i <= group_.last; ++i) {
        const ggml_tensor* node = graph_.nodes[i];
        bool member = std::any_of(members_.begin(), members_.end(), [&](const Member& m) { return m.node == node; });
        if (!member && !is_view_op(node)) {
            return fail(ErrorKind::unsupported, "'{}' ({}) lies between its parts", node->name, ggml_op_desc(node));
        }
    }
    return {};
}

Result<ExpertGroup> GroupMatcher::match() {
    const ggml_tensor* end = find_end();
    group_.out = graph_.nodes[index_of(end)];
    use(end);
    Result<Projection> down = match_projection(end);
    if (!down) return fail(down.error());
    set_projection(*down, Role::down, Role::down_scale, Role::down_bias);
    Result<Activated> activated = match_activation(down->input);
    if (!activated) return fail(activated.error());
    if (Status inputs = match_inputs(*activated); !inputs) return fail(inputs.error());
    if (Status shapes = check_shapes(); !shapes) return fail(shapes.error());
    if (Status members = check_members(); !members) return fail(members.error());
    Recipe& recipe = group_.recipe;
    recipe.gate_bias = group_[Role::gate_bias] != nullptr;
    recipe.up_bias = group_[Role::up_bias] != nullptr || group_[Role::gate_up_bias] != nullptr;
    recipe.down_bias = group_[Role::down_bias] != nullptr;
    recipe.gate_scale = group_[Role::gate_scale] != nullptr;
    recipe.up_scale = group_[Role::up_scale] != nullptr;
    recipe.down_scale = group_[Role::down_scale] != nullptr;
    return group_;
}

// Whether a MUL_MAT_ID may be a down projection: its input is an activation computed in this graph.
bool follows_activation(const ggml_cgraph& graph, const ggml_tensor* node) {
    const ggml_tensor* input = node->src[1];
    bool activation =
        input->op == GGML_OP_GLU || input->op == GGML_OP_UNARY || input->op == GGML_OP_SQR || input->op == GGML_OP_MUL;
    return activation && std::find(graph.nodes, graph.nodes + graph.n_nodes, input) != graph.nodes + graph.n_nodes;
}

// "blk.<N>.<rest>" → N, and `rest` the remainder.
std::optional<std::uint32_t> parse_block(std::string_view name, std::string_view& rest) {
    constexpr std::string_view kPrefix = "blk.";
    if (!name.starts_with(kPrefix)) return std::nullopt;
    name.remove_prefix(kPrefix.size());
    std::uint32_t layer = 0;
    auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), layer);
    auto digits = static_cast<std::size_t>(end - name.data());
    bool canonical = digits == 1 || name.front() != '0';
    if (error != std::errc() || !canonical || digits >= name.size() || name[digits] != '.') return std::nullopt;
    rest = name.substr(digits + 1);
    return layer;
}

std::string_view expected_name(Role role, bool fused) {
    switch (role) {
        case Role::gate:
            return "ffn_gate_exps.weight";
        case Role::up:
            return "ffn_up_exps.weight";
        case Role::down:
            return "ffn_down_exps.weight";
        case Role::gate_up:
            return "ffn_gate_up_exps.weight";
        case Role::gate_bias:
            return "ffn_gate_exps.bias";
        case Role::up_bias:
            return "ffn_up_exps.bias";
        case Role::down_bias:
            return "ffn_down_exps.bias";
        case Role::gate_up_bias:
            return "ffn_gate_up_exps.bias";
        case Role::gate_scale:
            return "ffn_gate_exps.scale";
        case Role::up_scale:
            return fused ? "ffn_gate_up_exps.scale" : "ffn_up_exps.scale";
        case Role::down_scale:
            return "ffn_down_exps.scale";
    }
    return {};
}

}  // namespace

std::uint32_t ExpertGroup::slots() const {
    return static_cast<std::uint32_t>(ids->ne[0]);
}
std::uint32_t ExpertGroup::tokens() const {
    return static_cast<std::uint32_t>(ids->ne[1]);
}
std::uint32_t ExpertGroup::experts() const {
    return static_cast<std::uint32_t>((*this)[Role::down]->ne[2]);
}
std::uint64_t ExpertGroup::hidden() const {
    return static_cast<std::uint64_t>(out->ne[0]);
}
std::uint32_t ExpertGroup::row_of(std::uint32_t token, std::uint32_t slot) const {
    return rows->ne[1] == 1 ? token : token * slots() + slot;
}

bool is_expert_scale(const ggml_tensor* scale) {
    if (scale == nullptr || scale->op != GGML_OP_GET_ROWS || scale->src[0]->op != GGML_OP_REPEAT) return false;
    const ggml_tensor* reshape = scale->src[0]->src[0];
    return reshape->op == GGML_OP_RESHAPE && reshape->ne[0] == 1 && ggml_nelements(reshape) == reshape->ne[1] &&
           reshape->src[0]->op == GGML_OP_NONE;
}

GroupScan find_expert_groups(const ggml_cgraph& graph) {
    GroupScan scan;
    std::vector<UnmatchedOp> refused;
    std::vector<int> others;
    for (int i = 0; i < graph.n_nodes; ++i) {
        const ggml_tensor* node = graph.nodes[i];
        if (node->op != GGML_OP_MUL_MAT_ID || (node->flags & GGML_TENSOR_FLAG_COMPUTE) == 0) continue;
        if (!follows_activation(graph, node)) {
            others.push_back(i);
            continue;
        }
        Result<ExpertGroup> group = GroupMatcher(graph, node).match();
        if (group) {
            scan.groups.push_back(*group);
        } else {
            refused.push_back({node, group.error().message});
        }
    }
    auto covered = [&](int index) {
        return std::any_of(scan.groups.begin(), scan.groups.end(),
                           [&](const ExpertGroup& group) { return index >= group.first && index <= group.last; });
    };
    for (UnmatchedOp& op : refused) {
        // The product of a weighted-before layer's rows looks like an activation to its first projections.
        auto index = std::find(graph.nodes, graph.nodes + graph.n_nodes, op.node) - graph.nodes;
        if (!covered(static_cast<int>(index))) scan.unmatched.push_back(std::move(op));
    }
    for (int index : others) {
        if (!covered(index)) scan.unmatched.push_back({graph.nodes[index], "nothing beside it completes its group"});
    }
    return scan;
}

Result<std::uint32_t> layer_number(const ExpertGroup& group) {
    std::optional<std::uint32_t> layer;
    for (int i = 0; i < kRoleCount; ++i) {
        Role role = static_cast<Role>(i);
        const ggml_tensor* weight = group[role];
        if (weight == nullptr) continue;
        std::string_view rest;
        std::optional<std::uint32_t> block = parse_block(weight->name, rest);
        if (!block || rest != expected_name(role, group.recipe.fused_gate_up)) {
            return fail(ErrorKind::unsupported, "'{}' is not named as the {} tensor of a layer's experts", weight->name,
                        role_name(role));
        }
        if (layer && *layer != *block) {
            return fail(ErrorKind::unsupported, "'{}' belongs to another layer than the rest of its group",
                        weight->name);
        }
        layer = block;
    }
    return *layer;
}

}  // namespace kvasir
