#include "expert/engine.h"

#include <new>

#include "expert/exact_engine.h"
#include "expert/ggml_engine.h"
#include "expert/portable_engine.h"
#include "expert/team.h"

namespace kvasir {

Result<std::unique_ptr<Engine>> Engine::create(Arithmetic arithmetic, int threads) {
    Result<std::unique_ptr<Team>> team = Team::create(threads);
    if (!team) return fail(team.error());
    switch (arithmetic) {
        case Arithmetic::portable:
            return make_portable_engine(std::move(*team));
        case Arithmetic::ggml_cpu:
            return make_ggml_engine(std::move(*team));
        case Arithmetic::exact:
            break;
    }
    return make_exact_engine(std::move(*team));
}

Status Engine::compute(const LayerWeights& weights, const Recipe& recipe, ByteSpan rows, std::span<const Pair> pairs,
                       std::span<std::byte> out) {
    if (Status checked = check_recipe(arithmetic_, recipe, weights); !checked) return checked;
    const std::size_t row_size = row_bytes(input_encoding(arithmetic_, weights), weights.hidden);
    const std::size_t out_size = row_bytes(output_encoding(arithmetic_), weights.hidden);
    if (rows.size() % row_size != 0) {
        return fail(ErrorKind::invalid, "{} bytes are not whole rows of {}", rows.size(), row_size);
    }
    if (out.size() / out_size != pairs.size() || out.size() % out_size != 0) {
        return fail(ErrorKind::invalid, "room for {} bytes of output; {} pairs of {} were asked for", out.size(),
                    pairs.size(), out_size);
    }
    const std::size_t row_count = rows.size() / row_size;
    for (const Pair& pair : pairs) {
        if (pair.row >= row_count) return fail(ErrorKind::invalid, "a pair of row {} of {}", pair.row, row_count);
        if (pair.expert >= weights.experts) {
            return fail(ErrorKind::invalid, "a pair of expert {} of {}", pair.expert, weights.experts);
        }
    }
    if (pairs.empty()) return {};
    try {
        return compute_checked(weights, recipe, rows, pairs, out);
    } catch (const std::bad_alloc&) {
        return fail(ErrorKind::unavailable, "no memory left to compute {} pairs of {} x {} with", pairs.size(),
                    weights.hidden, weights.ff);
    }
}

}  // namespace kvasir
