// Nothing is rounded below f64 between the hidden row and the output, so that what is left of a difference to another
// arithmetic is the other's error. Every matrix row is dequantised once per expert and call.
#include "expert/exact_engine.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <vector>

#include "expert/pair_groups.h"
#include "expert/projections.h"

namespace kvasir {

namespace {

constexpr std::size_t kTaskOutputs = 32;
// Columns that are dequantised at a time: whole blocks of every type.
constexpr std::size_t kPart = 256;

double sigmoid(double x) {
    return 1 / (1 + std::exp(-x));
}

// As section 5 of docs/portable-arithmetic.md has them.
double activate(const Recipe& recipe, double g, double u) {
    const double limit = recipe.limit;
    switch (recipe.activation) {
        case Activation::silu:
            return g * sigmoid(g) * u;
        case Activation::gelu:
            return g * sigmoid(2 * std::sqrt(2 / M_PI) * (g + 0.044715 * g * g * g)) * u;
        case Activation::relu:
            return std::max(g, 0.0) * u;
        case Activation::relu_squared:
            return std::max(g, 0.0) * std::max(g, 0.0) * u;
        case Activation::swiglu_oai: {
            const double x = std::min(g, limit);
            return x * sigmoid(recipe.alpha * x) * (std::clamp(u, -limit, limit) + 1);
        }
        case Activation::swiglu_clamp: {
            const double x = std::min(g, limit);
            return x * sigmoid(x) * std::clamp(u, -limit, limit);
        }
        case Activation::swiglu_limited:
            return std::min(g * sigmoid(g), limit) * std::clamp(u, -limit, limit);
        case Activation::unknown:
            break;
    }
    return NAN;
}

class ExactEngine final : public Engine {
  public:
    explicit ExactEngine(std::unique_ptr<Team> team) : Engine(Arithmetic::exact), team_(std::move(team)) {}

  private:
    Status compute_checked(const LayerWeights& weights, const Recipe& recipe, ByteSpan rows,
                           std::span<const Pair> pairs, std::span<std::byte> out) override;

    const std::unique_ptr<Team> team_;
};

// Outputs [begin, end) for every row of a group; in, out: [positions][columns], [positions][outputs].
void project(const Projection& projection, const PairGroup& group, const std::vector<double>& in, std::size_t begin,
             std::size_t end, std::vector<double>& out) {
    const std::size_t columns = projection.columns;
    const std::size_t row_size = ggml_row_size(projection.type, static_cast<std::int64_t>(columns));
    const std::byte* weights = projection.weights(group.expert);
    const float* scale = projection.scale(group.expert);
    std::array<float, kPart> part;
    for (std::size_t output = begin; output < end; ++output) {
        const std::byte* stored = weights + output * row_size;
        for (std::size_t i = group.first; i < group.first + group.count; ++i)
            out[i * projection.outputs + output] = 0;
        for (std::size_t start = 0; start < columns; start += kPart) {
            const auto count = static_cast<std::int64_t>(std::min(kPart, columns - start));
            const std::byte* from = stored + ggml_row_size(projection.type, static_cast<std::int64_t>(start));
            if (projection.type == GGML_TYPE_F32) {
                std::memcpy(part.data(), from, static_cast<std::size_t>(count) * sizeof(float));
            } else {
                ggml_get_type_traits(projection.type)->to_float(from, part.data(), count);
            }
            for (std::size_t i = group.first; i < group.first + group.count; ++i) {
                double& sum = out[i * projection.outputs + output];
                for (std::size_t c = 0; c < static_cast<std::size_t>(count); ++c)
                    sum += static_cast<double>(part[c]) * in[i * columns + start + c];
            }
        }
        for (std::size_t i = group.first; i < group.first + group.count; ++i) {
            double sum = out[i * projection.outputs + output];
            if (scale != nullptr) sum *= static_cast<double>(*scale);
            if (projection.biases != nullptr) sum += projection.bias(group.expert, output, output + 1)[0];
            out[i * projection.outputs + output] = sum;
        }
    }
}

Status ExactEngine::compute_checked(const LayerWeights& weights, const Recipe& recipe, ByteSpan rows,
                                    std::span<const Pair> pairs, std::span<std::byte> out) {
    const std::size_t hidden = weights.hidden;
    const std::size_t ff = weights.ff;
    const Projections projections = projections_of(weights);
    const auto* floats = reinterpret_cast<const float*>(rows.data());
    auto* results = reinterpret_cast<float*>(out.data());
    std::vector<std::uint32_t> order;
    order_by_expert(pairs, order);
    const std::vector<PairGroup> groups = groups_of(order, pairs);
    std::vector<double> input;
    input.reserve(pairs.size() * hidden);
    for (std::uint32_t index : order) {
        const float* row = floats + pairs[index].row * hidden;
        input.insert(input.end(), row, row + hidden);
    }
    std::vector<double> gate(projections.gate ? pairs.size() * ff : 0);
    std::vector<double> up(pairs.size() * ff);
    std::vector<double> outer(pairs.size() * hidden);
    auto stage = [&groups](std::atomic<std::size_t>& next, std::size_t outputs, auto task) -> Team::Stage {
        const std::size_t parts = (outputs + kTaskOutputs - 1) / kTaskOutputs;
        return Team::tasks(next, groups.size() * parts, [&groups, outputs, parts, task](std::size_t i) {
            const std::size_t begin = i % parts * kTaskOutputs;
            task(groups[i / parts], begin, std::min(begin + kTaskOutputs, outputs));
        });
    };
    std::array<std::atomic<std::size_t>, 2> next{};
    const std::array<Team::Stage, 2> stages = {
        stage(next[0], ff,
              [&](const PairGroup& group, std::size_t begin, std::size_t end) {
                  project(projections.up, group, input, begin, end, up);
                  if (projections.gate) project(*projections.gate, group, input, begin, end, gate);
                  for (std::size_t i = group.first; i < group.first + group.count; ++i) {
                      for (std::size_t c = i * ff + begin; c < i * ff + end; ++c)
                          up[c] = projections.gate ? activate(recipe, gate[c], up[c]) : activate(recipe, up[c], 1);
                  }
              }),
        stage(next[1], hidden,
              [&](const PairGroup& group, std::size_t begin, std::size_t end) {
                  project(projections.down, group, up, begin, end, outer);
                  for (std::size_t i = group.first; i < group.first + group.count; ++i) {
                      for (std::size_t c = begin; c < end; ++c)
                          results[order[i] * hidden + c] = static_cast<float>(outer[i * hidden + c]);
                  }
              }),
    };
    const std::uint64_t matrices = projections.gate ? 3 : 2;
    return team_->run(stages, pairs.size() * matrices * hidden * ff);
}

}  // namespace

std::unique_ptr<Engine> make_exact_engine(std::unique_ptr<Team> team) {
    return std::make_unique<ExactEngine>(std::move(team));
}

}  // namespace kvasir
