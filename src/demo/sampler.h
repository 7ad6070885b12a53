// Chooses the next token: llama.cpp's sampler with a fixed seed, so that equal logits give an equal text.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "verify/session.h"

struct llama_sampler;

namespace kvasir {

class StorySampler {
  public:
    // Temperature 0.7.
    explicit StorySampler(std::uint32_t seed);
    Token next(std::span<const float> logits);

  private:
    struct Free {
        void operator()(llama_sampler* chain) const;
    };
    std::unique_ptr<llama_sampler, Free> chain_;
};

}  // namespace kvasir
