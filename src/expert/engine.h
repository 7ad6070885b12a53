// The pure function a worker is: (weights, recipe, rows, pairs) → one output row per pair, in the arithmetic
// `ggml-cpu/<isa>`: ggml's own CPU kernels. A pair's bits depend on its row, its expert's weights and the recipe alone,
// never on which other pairs are in the call, their order, or the number of threads.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/bytes.h"
#include "base/result.h"
#include "expert/pair.h"
#include "gguf/expert_map.h"
#include "gguf/recipe.h"

namespace kvasir {

// One expert tensor in memory, experts outermost; not owned.
struct WeightView {
    std::uint32_t type = 0;  // enum ggml_type
    std::array<std::uint64_t, 4> shape = {1, 1, 1, 1};
    const std::byte* data = nullptr;
};

// The experts of one layer (or piece) in memory; not owned.
struct LayerWeights {
    std::uint64_t hidden = 0;
    std::uint64_t ff = 0;
    std::uint32_t experts = 0;
    std::array<std::optional<WeightView>, kRoleCount> tensors;

    const std::optional<WeightView>& operator[](Role role) const { return tensors[static_cast<std::size_t>(role)]; }
};

// Views of a mapped layer; `files` holds the bytes of each of the model's files.
LayerWeights view_weights(const ExpertLayer& layer, std::span<const ByteSpan> files);

// Sets what ggml must find in the environment before its first use for its kernels to be row-independent
// (GGML_NO_IQ_PANEL, see the header of engine.cpp). Call first thing in main().
void select_exact_kernels();

// "ggml-cpu/0.25.1/x86_64-avx512-vnni-…": equal names promise equal bits.
std::string ggml_cpu_arithmetic();

// Whether `recipe` can be computed with these tensors; the error names what is missing, unexpected or unknown.
Status check_recipe(const Recipe& recipe, const LayerWeights& weights);

// Not thread-safe: one engine per computing thread. Calls run on ggml's team of at most `threads` threads.
class Engine {
  public:
    static Result<std::unique_ptr<Engine>> create(int threads);
    ~Engine();

    // rows: [n][hidden]; pairs: local expert ids; out: [pairs][hidden]. Every index and size is checked before use.
    // On an error `out` is unspecified and must not be used.
    Status compute(const LayerWeights& weights, const Recipe& recipe, std::span<const float> rows,
                   std::span<const Pair> pairs, std::span<float> out);

  private:
    struct Implementation;
    explicit Engine(std::unique_ptr<Implementation> implementation);
    std::unique_ptr<Implementation> implementation_;
};

}  // namespace kvasir
