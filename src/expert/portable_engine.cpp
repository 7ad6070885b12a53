// Pairs are sorted by expert, and computed in five stages by the whole team: prepare the rows of each expert; gate, up
// and the function between them; prepare what comes out; down; round the results. A stage is cut into tasks that any
// thread may take: how does not change a bit.
#include "expert/portable_engine.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <optional>
#include <vector>

#include "expert/pair_groups.h"
#include "expert/projections.h"
#include "portable/kernels.h"

namespace kvasir {

namespace {

// Of intermediate results; bounds the memory of a call of any size.
constexpr std::size_t kScratchBytes = std::size_t{8} << 20;
// Outputs of a matrix that one task computes: a multiple of what the kernels like.
constexpr std::size_t kTaskOutputs = 64;
constexpr std::size_t kTaskRows = 4;

portable::Matrix matrix_of(const Projection& projection, std::uint32_t expert) {
    return {projection.type, projection.outputs, projection.columns, projection.weights(expert)};
}

portable::Form form_of(const Projection& projection) {
    return portable::traits(projection.type).form;
}

struct Group : PairGroup {
    std::optional<portable::PreparedRows> gate_rows;  // where gate and up want different forms
    std::optional<portable::PreparedRows> rows;
    std::optional<portable::PreparedRows> inner;
};

class PortableEngine final : public Engine {
  public:
    explicit PortableEngine(std::unique_ptr<Team> team) : Engine(Arithmetic::portable), team_(std::move(team)) {}

  private:
    Status compute_checked(const LayerWeights& weights, const Recipe& recipe, ByteSpan rows,
                           std::span<const Pair> pairs, std::span<std::byte> out) override;
    Status compute_chunk(std::span<const std::uint32_t> order, std::span<const Pair> pairs, std::span<std::byte> out);

    void prepare(Group& group, std::span<const std::uint32_t> order, std::span<const Pair> pairs) const;
    portable::PreparedRows prepared(portable::Form form, std::size_t count, const std::byte* rows) const;
    void compute_inner(Group& group, std::size_t begin);
    void prepare_inner(Group& group) const;
    void compute_outer(Group& group, std::size_t begin);
    void project(const Projection& projection, const Group& group, const portable::PreparedRows& rows,
                 std::size_t begin, std::size_t end, float* out) const;

    const std::unique_ptr<Team> team_;
    const portable::Kernels kernels_;
    // Of the call.
    RowEncoding encoding_ = RowEncoding::f32;
    std::size_t hidden_ = 0;
    std::size_t ff_ = 0;
    ByteSpan rows_;
    Projections projections_;
    portable::Activation activation_;
    // These keep their memory from call to call. By position in the sorted order:
    std::vector<std::uint32_t> order_;
    std::vector<Group> groups_;
    std::vector<float> gate_;   // [pairs][ff]
    std::vector<float> up_;     // [pairs][ff]
    std::vector<float> outer_;  // [pairs][hidden]
};

std::size_t tasks_for(std::size_t outputs) {
    return (outputs + kTaskOutputs - 1) / kTaskOutputs;
}

Status PortableEngine::compute_checked(const LayerWeights& weights, const Recipe& recipe, ByteSpan rows,
                                       std::span<const Pair> pairs, std::span<std::byte> out) {
    encoding_ = input_encoding(Arithmetic::portable, weights);
    hidden_ = weights.hidden;
    ff_ = weights.ff;
    rows_ = rows;
    projections_ = projections_of(weights);
    activation_ = {static_cast<portable::Function>(recipe.activation), recipe.alpha, recipe.limit};
    order_by_expert(pairs, order_);
    // The floats above, and rows as bytes and as prepared, twice.
    const std::size_t bytes_per_pair = 4 * (hidden_ + ff_) * sizeof(float);
    const std::size_t chunk = std::max<std::size_t>(1, kScratchBytes / bytes_per_pair);
    for (std::size_t first = 0; first < order_.size(); first += chunk) {
        const auto part = std::span(order_).subspan(first, std::min(chunk, order_.size() - first));
        if (Status computed = compute_chunk(part, pairs, out); !computed) return computed;
    }
    return {};
}

Status PortableEngine::compute_chunk(std::span<const std::uint32_t> order, std::span<const Pair> pairs,
                                     std::span<std::byte> out) {
    groups_.clear();
    for (const PairGroup& group : groups_of(order, pairs))
        groups_.push_back({group, {}, {}, {}});
    gate_.resize(projections_.gate ? order.size() * ff_ : 0);
    up_.resize(order.size() * ff_);
    outer_.resize(order.size() * hidden_);
    const std::size_t inner_tasks = tasks_for(ff_);
    const std::size_t outer_tasks = tasks_for(hidden_);
    const std::size_t row_size = row_bytes(RowEncoding::i16x256, hidden_);
    std::array<std::atomic<std::size_t>, 5> next{};
    const std::array<Team::Stage, 5> stages = {
        Team::tasks(next[0], groups_.size(), [&](std::size_t i) { prepare(groups_[i], order, pairs); }),
        Team::tasks(next[1], groups_.size() * inner_tasks,
                    [&](std::size_t i) { compute_inner(groups_[i / inner_tasks], i % inner_tasks * kTaskOutputs); }),
        Team::tasks(next[2], groups_.size(), [&](std::size_t i) { prepare_inner(groups_[i]); }),
        Team::tasks(next[3], groups_.size() * outer_tasks,
                    [&](std::size_t i) { compute_outer(groups_[i / outer_tasks], i % outer_tasks * kTaskOutputs); }),
        Team::tasks(next[4], (order.size() + kTaskRows - 1) / kTaskRows,
                    [&](std::size_t i) {
                        for (std::size_t at = i * kTaskRows; at < std::min(order.size(), (i + 1) * kTaskRows); ++at) {
                            kernels_.to_result(std::span(outer_).subspan(at * hidden_, hidden_),
                                               out.subspan(order[at] * row_size, row_size));
                        }
                    }),
    };
    const std::uint64_t matrices = projections_.gate ? 3 : 2;
    return team_->run(stages, order.size() * matrices * hidden_ * ff_);
}

// Rows as they travelled, ready for a matrix of `form`.
portable::PreparedRows PortableEngine::prepared(portable::Form form, std::size_t count, const std::byte* rows) const {
    const bool as_they_are = static_cast<std::uint8_t>(form) == static_cast<std::uint8_t>(encoding_);
    if (as_they_are) return {form, hidden_, count, rows};
    const std::size_t size = portable::row_bytes(form, hidden_);
    ByteVector quantised(count * size);
    const auto* floats = reinterpret_cast<const float*>(rows);
    for (std::size_t i = 0; i < count; ++i)
        kernels_.quantise(form, {floats + i * hidden_, hidden_}, std::span(quantised).subspan(i * size, size));
    return {form, hidden_, count, quantised.data()};
}

void PortableEngine::prepare(Group& group, std::span<const std::uint32_t> order, std::span<const Pair> pairs) const {
    const std::size_t size = row_bytes(encoding_, hidden_);
    ByteVector gathered(group.count * size);
    for (std::size_t i = 0; i < group.count; ++i) {
        const std::size_t row = pairs[order[group.first + i]].row;
        std::ranges::copy(rows_.subspan(row * size, size), gathered.begin() + static_cast<std::ptrdiff_t>(i * size));
    }
    const portable::Form form = form_of(projections_.up);
    group.rows.emplace(prepared(form, group.count, gathered.data()));
    if (projections_.gate && form_of(*projections_.gate) != form) {
        group.gate_rows.emplace(prepared(form_of(*projections_.gate), group.count, gathered.data()));
    }
}

// Outputs [begin, end) of every row of a group; out: [pairs][outputs].
void PortableEngine::project(const Projection& projection, const Group& group, const portable::PreparedRows& rows,
                             std::size_t begin, std::size_t end, float* out) const {
    float* own = out + group.first * projection.outputs;
    kernels_.multiply(matrix_of(projection, group.expert), rows, begin, end, own, projection.outputs);
    if (projection.scales == nullptr && projection.biases == nullptr) return;
    for (std::size_t i = 0; i < group.count; ++i) {
        kernels_.scale_and_bias({own + i * projection.outputs + begin, end - begin}, projection.scale(group.expert),
                                projection.bias(group.expert, begin, end));
    }
}

void PortableEngine::compute_inner(Group& group, std::size_t begin) {
    const std::size_t end = std::min(begin + kTaskOutputs, ff_);
    project(projections_.up, group, *group.rows, begin, end, up_.data());
    if (projections_.gate) {
        const portable::PreparedRows& rows = group.gate_rows ? *group.gate_rows : *group.rows;
        project(*projections_.gate, group, rows, begin, end, gate_.data());
    }
    for (std::size_t i = group.first; i < group.first + group.count; ++i) {
        const std::span<float> up(up_.data() + i * ff_ + begin, end - begin);
        std::span<const float> gate;
        if (projections_.gate) gate = {gate_.data() + i * ff_ + begin, end - begin};
        kernels_.activate(activation_, gate, up, up);
    }
}

void PortableEngine::prepare_inner(Group& group) const {
    const portable::Form form = form_of(projections_.down);
    const std::size_t size = portable::row_bytes(form, ff_);
    ByteVector quantised(group.count * size);
    for (std::size_t i = 0; i < group.count; ++i) {
        kernels_.quantise(form, {up_.data() + (group.first + i) * ff_, ff_},
                          std::span(quantised).subspan(i * size, size));
    }
    group.inner.emplace(form, ff_, group.count, quantised.data());
}

void PortableEngine::compute_outer(Group& group, std::size_t begin) {
    project(projections_.down, group, *group.inner, begin, std::min(begin + kTaskOutputs, hidden_), outer_.data());
}

}  // namespace

std::unique_ptr<Engine> make_portable_engine(std::unique_ptr<Team> team) {
    return std::make_unique<PortableEngine>(std::move(team));
}

}  // namespace kvasir
