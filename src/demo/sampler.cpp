#include "demo/sampler.h"

#include <llama.h>

#include <vector>

namespace kvasir {

constexpr float kTemperature = 0.7F;

StorySampler::StorySampler(std::uint32_t seed)
    : chain_(llama_sampler_chain_init(llama_sampler_chain_default_params())) {
    llama_sampler_chain_add(chain_.get(), llama_sampler_init_temp(kTemperature));
    llama_sampler_chain_add(chain_.get(), llama_sampler_init_dist(seed));
}

void StorySampler::Free::operator()(llama_sampler* chain) const {
    llama_sampler_free(chain);
}

Token StorySampler::next(std::span<const float> logits) {
    std::vector<llama_token_data> candidates;
    candidates.reserve(logits.size());
    for (std::size_t id = 0; id < logits.size(); ++id) {
        candidates.push_back({static_cast<Token>(id), logits[id], 0.0F});
    }
    llama_token_data_array array{candidates.data(), candidates.size(), -1, false};
    llama_sampler_apply(chain_.get(), &array);
    const std::size_t selected = array.selected < 0 ? 0 : static_cast<std::size_t>(array.selected);
    const Token token = array.data[selected].id;
    llama_sampler_accept(chain_.get(), token);
    return token;
}

}  // namespace kvasir
