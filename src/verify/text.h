// The tokens that verification runs on.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"
#include "verify/session.h"

namespace kvasir {

struct VerifyText {
    std::vector<Token> tokens;
    std::string source;  // in words
};

// Exactly `count` tokens: of `file` (repeated from its start where it is too short), or where that is empty of
// `tales-heldout.txt` beside the model, or else a fixed pseudo-random sequence, which any model accepts.
Result<VerifyText> verify_text(const LlamaModel& model, const std::filesystem::path& model_path,
                               const std::filesystem::path& file, std::size_t count);

}  // namespace kvasir
