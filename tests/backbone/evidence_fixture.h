// Evidence for tests, signed by anybody.
#pragma once

#include <utility>

#include "backbone/evidence.h"
#include "net/signature.h"

namespace kvasir::test {

// Its attestation, made anew: `signer` attests this answer to this question, among others.
inline void sign_evidence(Evidence& evidence, const Identity& signer) {
    const Digest digest = answer_digest(evidence.terms, sha256(evidence.row), evidence.answer);
    ByteVector payload =
        encode_unsigned(public_key(signer), {{41, 0, {Digest{}, Digest{}}}, {42, 3, {Digest{}, digest}}});
    const Signature signature = sign(signer, attested_text(evidence.context, payload));
    payload.insert(payload.end(), signature.begin(), signature.end());
    evidence.attestation = std::move(payload);
}

}  // namespace kvasir::test
