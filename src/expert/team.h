// ggml's team of threads: a process has one, whichever arithmetic it computes in, and whoever computes on the caller's
// thread shares it (OpenMP keeps a team per calling thread).
#pragma once

#include <ggml-cpu.h>
#include <ggml.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"

namespace kvasir {

// Not thread-safe.
class Team {
  public:
    static Result<std::unique_ptr<Team>> create(int threads);

    // Runs a graph. `multiplications` tells whether its work is worth waking the team for.
    Status run(ggml_cgraph* graph, std::uint64_t multiplications);

    // Called by every thread of the team, with its number and how many they are.
    using Stage = std::function<void(int thread, int threads)>;
    // Tasks 0 … count − 1, each done once, by whichever thread is free. `next` begins at 0 and lives as long as the
    // stage.
    template <class Task>
    static Stage tasks(std::atomic<std::size_t>& next, std::size_t count, Task task) {
        return [&next, count, task](int /*thread*/, int /*threads*/) {
            for (std::size_t i = next.fetch_add(1); i < count; i = next.fetch_add(1))
                task(i);
        };
    }
    // Runs the stages in their order: no thread begins one before all have finished the one before. A stage must not
    // throw: other threads than the caller's have nobody to catch it.
    Status run(std::span<const Stage> stages, std::uint64_t multiplications);

    // How many threads take part in a run of so much work.
    int threads_for(std::uint64_t multiplications) const;

  private:
    struct FreePool {
        void operator()(ggml_threadpool* pool) const { ggml_threadpool_free(pool); }
    };
    struct FreeContext {
        void operator()(ggml_context* context) const { ggml_free(context); }
    };
    Team() = default;
    Status run_together(std::span<const Stage> stages, std::uint64_t multiplications);

    int threads_ = 1;
    std::unique_ptr<ggml_threadpool, FreePool> pool_;
    std::vector<std::uint8_t> work_;
    ByteVector memory_;  // of the context for stages
    std::unique_ptr<ggml_context, FreeContext> context_;
};

}  // namespace kvasir
