// Evidence: a wrong answer that its worker has signed, in a file that anybody who has the model can check
// (docs/audits.md has the format).
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/result.h"
#include "wire/attestation.h"

namespace kvasir {

struct Evidence {
    AttestationContext context;
    AnswerTerms terms;
    ByteVector row;           // as it was asked
    ByteVector answer;        // as the worker gave it
    ByteVector right_answer;  // as the backbone computed it: for people, nothing is concluded from it
    ByteVector attestation;   // the payload of the worker's ATTEST frame
};

std::string to_json(const Evidence& evidence);
// Refuses whatever isn't complete and of the right lengths, by name.
Result<Evidence> evidence_from_json(std::string_view text);

// Into a file of its own in `directory`, which is made; returns its path.
Result<std::filesystem::path> save(const Evidence& evidence, const std::filesystem::path& directory);
Result<Evidence> load_evidence(const std::filesystem::path& path);

// $KVASIR_HOME/evidence, or $XDG_STATE_HOME/kvasir/evidence, or ~/.local/state/kvasir/evidence.
std::filesystem::path default_evidence_directory();

// That the answer was signed by the key in it: the worker's node id. ErrorKind::mismatch says what does not hold.
Result<NodeId> signer_of(const Evidence& evidence);

}  // namespace kvasir
