#include "expert/team.h"

#include <array>
#include <atomic>

namespace kvasir {

namespace {

// ggml's barriers order the stages; this makes it visible to whoever cannot see them (ThreadSanitizer). One for all
// teams, initialised before any thread there is: OpenMP's threads are older than most teams.
void order_memory() {
    static constinit std::atomic<std::uint32_t> counter{0};
    counter.fetch_add(1, std::memory_order_acq_rel);
}

void call_stage(ggml_tensor* /*node*/, int thread, int threads, void* stage) {
    order_memory();
    (*static_cast<const Team::Stage*>(stage))(thread, threads);
    order_memory();
}

constexpr std::size_t kMostStages = 8;
constexpr int kLargestTeam = GGML_MAX_N_THREADS;
// Waking a team of threads and its barriers cost some 20 us; below this many multiplications one thread is faster.
constexpr std::uint64_t kTeamWork = 2'000'000;

}  // namespace

Result<std::unique_ptr<Team>> Team::create(int threads) {
    if (threads < 1 || threads > kLargestTeam) {
        return fail(ErrorKind::usage, "{} threads to compute with: 1 to {} are possible", threads, kLargestTeam);
    }
    ggml_cpu_init();
    std::unique_ptr<Team> team(new Team);
    team->threads_ = threads;
    ggml_threadpool_params parameters = ggml_threadpool_params_default(threads);
    parameters.poll = 0;
    team->pool_.reset(ggml_threadpool_new(&parameters));
    if (!team->pool_) return fail(ErrorKind::unavailable, "no threads to compute with");
    team->memory_.resize(kMostStages * ggml_tensor_overhead() + ggml_graph_overhead_custom(kMostStages, false));
    team->context_.reset(ggml_init({team->memory_.size(), team->memory_.data(), true}));
    // ggml makes some of its tables at their first use. Made here, they outlive exit handlers that are registered later
    // and wait for whoever still computes.
    const std::array<Stage, 1> nothing = {[](int /*thread*/, int /*threads*/) {}};
    if (Status ran = team->run_together(nothing, 0); !ran) return fail(ran.error());
    return team;
}

int Team::threads_for(std::uint64_t multiplications) const {
    // Either one thread or the whole team: OpenMP ends and restarts threads when a team's size changes.
    return multiplications < kTeamWork ? 1 : threads_;
}

Status Team::run(ggml_cgraph* graph, std::uint64_t multiplications) {
    ggml_cplan plan = ggml_graph_plan(graph, threads_for(multiplications), pool_.get());
    if (work_.size() < plan.work_size) work_.resize(plan.work_size);
    plan.work_data = work_.data();
    const ggml_status status = ggml_graph_compute(graph, &plan);
    if (status == GGML_STATUS_SUCCESS) return {};
    return fail(ErrorKind::internal, "ggml could not compute the graph: {}", ggml_status_to_string(status));
}

Status Team::run(std::span<const Stage> stages, std::uint64_t multiplications) {
    if (stages.size() > kMostStages) return fail(ErrorKind::internal, "{} stages", stages.size());
    if (threads_for(multiplications) > 1) return run_together(stages, multiplications);
    // A graph for the caller's thread alone would only cost time.
    for (const Stage& stage : stages)
        stage(0, 1);
    return {};
}

Status Team::run_together(std::span<const Stage> stages, std::uint64_t multiplications) {
    ggml_reset(context_.get());
    ggml_cgraph* graph = ggml_new_graph_custom(context_.get(), kMostStages, false);
    ggml_tensor* before = nullptr;
    for (const Stage& stage : stages) {
        // Nodes without data: what they compute, the stages know.
        before = ggml_custom_4d(context_.get(), GGML_TYPE_I8, 1, 1, 1, 1, &before, before != nullptr ? 1 : 0,
                                call_stage, GGML_N_TASKS_MAX, const_cast<Stage*>(&stage));
        ggml_build_forward_expand(graph, before);
    }
    order_memory();
    Status ran = run(graph, multiplications);
    order_memory();
    return ran;
}

}  // namespace kvasir
