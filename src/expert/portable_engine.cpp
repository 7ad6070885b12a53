// Pairs are sorted by expert, and computed in three stages by the whole team: prepare the rows of the call; gate, up
// and the function between them; down. Whoever finishes the last piece of an expert prepares what comes out, or rounds
// the results. A stage is cut into tasks that any thread may take: how does not change a bit. Stages allocate nothing.
#include "expert/portable_engine.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <vector>

#include "expert/pair_groups.h"
#include "expert/projections.h"
#include "portable/kernels.h"

namespace kvasir {

namespace {

// Of intermediate results; bounds the memory of a call of any size.
constexpr std::size_t kScratchBytes = std::size_t{8} << 20;
// Multiplications of one task, where several threads take them: some ten microseconds.
constexpr std::size_t kTaskWork = 400'000;
// A task's outputs are a multiple of what the kernels like.
constexpr std::size_t kOutputsAtOnce = 16;
// Numbers of rows that are prepared at once by the team rather than by the caller.
constexpr std::size_t kPreparedByTeam = 64 * 1024;

portable::Matrix matrix_of(const Projection& projection, std::uint32_t expert) {
    return {projection.type, projection.outputs, projection.columns, projection.weights(expert)};
}

portable::Form form_of(const Projection& projection) {
    return portable::traits(projection.type).form;
}

struct Group : PairGroup {
    std::size_t slot = 0;          // of its first row among the prepared ones; the others follow
    std::uint32_t inner_left = 0;  // tasks; atomic while a stage runs
    std::uint32_t outer_left = 0;
};

// Outputs [begin, end) of every row of a group.
struct Task {
    std::size_t group = 0;
    std::size_t begin = 0;
    std::size_t end = 0;
};

class PortableEngine final : public Engine {
  public:
    explicit PortableEngine(std::unique_ptr<Team> team) : Engine(Arithmetic::portable), team_(std::move(team)) {}

  private:
    Status compute_checked(const LayerWeights& weights, const Recipe& recipe, ByteSpan rows,
                           std::span<const Pair> pairs, std::span<std::byte> out) override;
    Status compute_chunk(std::span<const std::uint32_t> order, std::span<const Pair> pairs);

    void place_rows(std::span<const std::uint32_t> order, std::span<const Pair> pairs);
    void prepare(std::size_t slot);
    void prepare(std::span<const std::byte> row, std::size_t slot, portable::PreparedRows& into) const;
    void compute_inner(const Task& task);
    void compute_outer(const Task& task, std::span<const std::uint32_t> order);
    void project(const Projection& projection, const Task& task, const portable::RowsView& rows, float* out) const;

    const std::unique_ptr<Team> team_;
    const portable::Kernels kernels_;
    // Of the call.
    RowEncoding encoding_ = RowEncoding::f32;
    std::size_t hidden_ = 0;
    std::size_t ff_ = 0;
    ByteSpan rows_;
    std::span<std::byte> out_;
    Projections projections_;
    portable::Activation activation_;
    bool two_forms_ = false;  // gate and up want rows of different forms
    // These keep their memory from call to call. By position in the sorted order:
    std::vector<std::uint32_t> order_;
    std::vector<Group> groups_;
    std::vector<Task> inner_tasks_;
    std::vector<Task> outer_tasks_;
    std::vector<std::uint32_t> slot_rows_;     // the call's row in each slot
    std::vector<std::uint32_t> single_slots_;  // by the call's row: its slot, where an expert has it alone
    portable::PreparedRows up_rows_;           // [slots]
    portable::PreparedRows gate_rows_;         // [slots], with two forms
    std::vector<float> gate_;                  // [pairs][ff]
    std::vector<float> up_;                    // [pairs][ff]
    portable::PreparedRows inner_;             // [pairs]
    std::vector<float> outer_;                 // [pairs][hidden]
};

Status PortableEngine::compute_checked(const LayerWeights& weights, const Recipe& recipe, ByteSpan rows,
                                       std::span<const Pair> pairs, std::span<std::byte> out) {
    encoding_ = input_encoding(Arithmetic::portable, weights);
    hidden_ = weights.hidden;
    ff_ = weights.ff;
    rows_ = rows;
    out_ = out;
    projections_ = projections_of(weights);
    activation_ = {static_cast<portable::Function>(recipe.activation), recipe.alpha, recipe.limit};
    two_forms_ = projections_.gate && form_of(*projections_.gate) != form_of(projections_.up);
    order_by_expert(pairs, order_);
    // The floats above, and rows as prepared, twice.
    const std::size_t bytes_per_pair = 4 * (hidden_ + ff_) * sizeof(float);
    const std::size_t chunk = std::max<std::size_t>(1, kScratchBytes / bytes_per_pair);
    for (std::size_t first = 0; first < order_.size(); first += chunk) {
        const auto part = std::span(order_).subspan(first, std::min(chunk, order_.size() - first));
        if (Status computed = compute_chunk(part, pairs); !computed) return computed;
    }
    return {};
}

// Cuts `outputs` of a group into tasks, and tells how many they are.
std::uint32_t cut(std::size_t group, std::size_t outputs, std::size_t work_per_output, bool alone,
                  std::vector<Task>& tasks) {
    const std::size_t wanted = alone ? outputs : kTaskWork / work_per_output / kOutputsAtOnce * kOutputsAtOnce;
    const std::size_t step = std::max(wanted, kOutputsAtOnce);
    std::uint32_t count = 0;
    for (std::size_t begin = 0; begin < outputs; begin += step, ++count)
        tasks.push_back({group, begin, std::min(begin + step, outputs)});
    return count;
}

Status PortableEngine::compute_chunk(std::span<const std::uint32_t> order, std::span<const Pair> pairs) {
    const std::size_t first_matrices = projections_.gate ? 2 : 1;
    const std::uint64_t multiplications = std::uint64_t{order.size()} * (first_matrices + 1) * hidden_ * ff_;
    const bool alone = team_->threads_for(multiplications) == 1;
    find_groups(order, pairs, groups_);
    inner_tasks_.clear();
    outer_tasks_.clear();
    for (std::size_t i = 0; i < groups_.size(); ++i) {
        Group& group = groups_[i];
        group.inner_left = cut(i, ff_, group.count * first_matrices * hidden_, alone, inner_tasks_);
        group.outer_left = cut(i, hidden_, group.count * ff_, alone, outer_tasks_);
    }
    place_rows(order, pairs);
    gate_.resize(projections_.gate ? order.size() * ff_ : 0);
    up_.resize(order.size() * ff_);
    inner_.resize(form_of(projections_.down), ff_, order.size());
    outer_.resize(order.size() * hidden_);

    const bool prepared_by_team = !alone && slot_rows_.size() * hidden_ >= kPreparedByTeam;
    for (std::size_t slot = 0; slot < slot_rows_.size() && !prepared_by_team; ++slot)
        prepare(slot);
    std::array<std::atomic<std::size_t>, 3> next{};
    const std::array<Team::Stage, 3> stages = {
        Team::tasks(next[0], slot_rows_.size(), [this](std::size_t i) { prepare(i); }),
        Team::tasks(next[1], inner_tasks_.size(), [this](std::size_t i) { compute_inner(inner_tasks_[i]); }),
        Team::tasks(next[2], outer_tasks_.size(), [&](std::size_t i) { compute_outer(outer_tasks_[i], order); }),
    };
    return team_->run(std::span(stages).subspan(prepared_by_team ? 0 : 1), multiplications);
}

// A group's rows lie together. Experts with one row share it, as all of them do where one token is decoded.
void PortableEngine::place_rows(std::span<const std::uint32_t> order, std::span<const Pair> pairs) {
    constexpr std::uint32_t kNone = 0xFFFFFFFF;
    slot_rows_.clear();
    single_slots_.assign(rows_.size() / row_bytes(encoding_, hidden_), kNone);
    for (Group& group : groups_) {
        const std::uint32_t row = pairs[order[group.first]].row;
        group.slot = slot_rows_.size();
        if (group.count == 1) {
            if (single_slots_[row] == kNone) {
                single_slots_[row] = static_cast<std::uint32_t>(group.slot);
            } else {
                group.slot = single_slots_[row];
                continue;
            }
        }
        for (std::size_t i = 0; i < group.count; ++i)
            slot_rows_.push_back(pairs[order[group.first + i]].row);
    }
    up_rows_.resize(form_of(projections_.up), hidden_, slot_rows_.size());
    if (two_forms_) gate_rows_.resize(form_of(*projections_.gate), hidden_, slot_rows_.size());
}

void PortableEngine::prepare(std::size_t slot) {
    const std::size_t size = row_bytes(encoding_, hidden_);
    const ByteSpan row = rows_.subspan(slot_rows_[slot] * size, size);
    prepare(row, slot, up_rows_);
    if (two_forms_) prepare(row, slot, gate_rows_);
}

// A row as it travelled, ready for a matrix.
void PortableEngine::prepare(std::span<const std::byte> row, std::size_t slot, portable::PreparedRows& into) const {
    const bool as_it_is = static_cast<std::uint8_t>(into.form()) == static_cast<std::uint8_t>(encoding_);
    if (as_it_is) return kernels_.read(row, into, slot);
    kernels_.prepare({reinterpret_cast<const float*>(row.data()), hidden_}, into, slot);
}

// out: [pairs][outputs].
void PortableEngine::project(const Projection& projection, const Task& task, const portable::RowsView& rows,
                             float* out) const {
    const Group& group = groups_[task.group];
    float* own = out + group.first * projection.outputs;
    kernels_.multiply(matrix_of(projection, group.expert), rows, task.begin, task.end, own, projection.outputs);
    if (projection.scales == nullptr && projection.biases == nullptr) return;
    for (std::size_t i = 0; i < group.count; ++i) {
        kernels_.scale_and_bias({own + i * projection.outputs + task.begin, task.end - task.begin},
                                projection.scale(group.expert), projection.bias(group.expert, task.begin, task.end));
    }
}

// Whether nobody else has tasks left; what they wrote can then be read.
bool finish_one(std::uint32_t& left) {
    return std::atomic_ref(left).fetch_sub(1, std::memory_order_acq_rel) == 1;
}

void PortableEngine::compute_inner(const Task& task) {
    Group& group = groups_[task.group];
    project(projections_.up, task, up_rows_.view(group.slot, group.count), up_.data());
    if (projections_.gate) {
        const portable::PreparedRows& rows = two_forms_ ? gate_rows_ : up_rows_;
        project(*projections_.gate, task, rows.view(group.slot, group.count), gate_.data());
    }
    for (std::size_t i = group.first; i < group.first + group.count; ++i) {
        const std::span<float> up(up_.data() + i * ff_ + task.begin, task.end - task.begin);
        std::span<const float> gate;
        if (projections_.gate) gate = {gate_.data() + i * ff_ + task.begin, task.end - task.begin};
        kernels_.activate(activation_, gate, up, up);
    }
    if (!finish_one(group.inner_left)) return;
    for (std::size_t i = group.first; i < group.first + group.count; ++i)
        kernels_.prepare({up_.data() + i * ff_, ff_}, inner_, i);
}

void PortableEngine::compute_outer(const Task& task, std::span<const std::uint32_t> order) {
    Group& group = groups_[task.group];
    project(projections_.down, task, inner_.view(group.first, group.count), outer_.data());
    if (!finish_one(group.outer_left)) return;
    const std::size_t row_size = row_bytes(RowEncoding::i16x256, hidden_);
    for (std::size_t i = group.first; i < group.first + group.count; ++i) {
        kernels_.to_result(std::span(outer_).subspan(i * hidden_, hidden_),
                           out_.subspan(order[i] * row_size, row_size));
    }
}

}  // namespace

std::unique_ptr<Engine> make_portable_engine(std::unique_ptr<Team> team) {
    return std::make_unique<PortableEngine>(std::move(team));
}

}  // namespace kvasir
