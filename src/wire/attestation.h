// Signed answers: a worker that is known by its key tells, in ATTEST frames, the digests of what it answered and signs
// them, so that a wrong answer can be shown to others. docs/protocol.md has the layout, docs/audits.md what is made of
// it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "base/sha256.h"
#include "expert/row_encoding.h"
#include "gguf/recipe.h"
#include "wire/messages.h"

namespace kvasir {

using PublicKey = std::array<std::byte, 32>;  // raw, Ed25519
using Signature = std::array<std::byte, 64>;  // Ed25519 (RFC 8032)

// What a pair was, besides its row, and how both rows are written.
struct AnswerTerms {
    std::uint32_t layer = 0;
    std::uint32_t expert = 0;  // global id
    std::uint32_t hidden = 0;
    Recipe recipe;
    RowEncoding question = RowEncoding::f32;
    RowEncoding answer = RowEncoding::f32;
};

// SHA-256(layer u32, expert u32, hidden u32, question u8, answer u8, zero u16, recipe (16 bytes), SHA-256 of the
// question's row, the answer's row).
Digest answer_digest(const AnswerTerms& terms, const Digest& row, ByteSpan answer);

// The answers of one request: of its pairs [first, first + digests.size()).
struct AttestedAnswers {
    std::uint64_t request = 0;
    std::uint32_t first = 0;
    std::vector<Digest> digests;

    bool operator==(const AttestedAnswers&) const = default;
};

struct Attestation {
    PublicKey key{};  // the worker's
    std::vector<AttestedAnswers> answers;
    Signature signature{};  // of attested_text(); the payload's last bytes
};

// Between whom, and in what numbers: known to both ends from the handshake.
struct AttestationContext {
    Digest model_id{};
    NodeId backbone{};
    std::string arithmetic;  // as in WELCOME
};

// At most so many digests go into one frame: 32 bytes each stay far below kControlPayloadLimit.
inline constexpr std::size_t kMostAttested = 8192;

// The payload without its signature.
ByteVector encode_unsigned(const PublicKey& key, const std::vector<AttestedAnswers>& answers);
Result<Attestation> decode_attestation(ByteSpan payload);

// What is signed: "kvasir attestation 1", model id, backbone id, SHA-256 of the arithmetic's name, SHA-256 of the
// payload without its signature.
ByteVector attested_text(const AttestationContext& context, ByteSpan payload_without_signature);

}  // namespace kvasir
