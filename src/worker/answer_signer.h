// A session's signatures: digests of what it answered, gathered and signed a few times a second (wire/attestation.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/bytes.h"
#include "net/identity.h"
#include "wire/attestation.h"
#include "wire/messages.h"

namespace kvasir {

// Of every pair's answer, in the order of the pairs. answers: [pairs] rows of `encoding`.
std::vector<Digest> digest_answers(const Compute& compute, RowEncoding encoding, ByteSpan answers);

// Thread-safe.
class AnswerSigner {
  public:
    using Clock = std::chrono::steady_clock;

    AnswerSigner(std::shared_ptr<const Identity> identity, AttestationContext context);

    // Takes the digests of an answer that was sent. What comes back are the payloads of ATTEST frames that are due:
    // when much has gathered, or for long.
    std::vector<ByteVector> add(std::uint64_t request, std::vector<Digest> digests, Clock::time_point now);
    // All that has gathered.
    std::vector<ByteVector> flush();

  private:
    std::vector<ByteVector> sign_all(std::vector<AttestedAnswers> answers) const;

    const std::shared_ptr<const Identity> identity_;
    const AttestationContext context_;

    std::mutex mutex_;  // guards the rest
    std::vector<AttestedAnswers> gathered_;
    std::size_t count_ = 0;  // digests in them
    Clock::time_point oldest_;
};

}  // namespace kvasir
