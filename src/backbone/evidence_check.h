// Whether evidence holds, by the model's published weights: what a third party does with it.
#pragma once

#include <filesystem>

#include "backbone/evidence.h"
#include "base/result.h"

namespace kvasir {

struct EvidenceVerdict {
    NodeId worker{};        // who signed the wrong answer
    std::size_t wrong = 0;  // of its values
};

// manifest: empty for the one beside the model. Evidence that does not hold is ErrorKind::mismatch, and says what does
// not; that it cannot be checked (another model, damaged weights, an arithmetic that this machine does not compute in)
// is another kind.
Result<EvidenceVerdict> check_evidence(const Evidence& evidence, const std::filesystem::path& model,
                                       const std::filesystem::path& manifest);

}  // namespace kvasir
