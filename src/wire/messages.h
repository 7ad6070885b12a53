// The messages inside frames, as plain data with one encoder and one decoder each. Decoders check every count, index
// and length against the payload before use, and say what was wrong. docs/protocol.md has the byte layouts.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/sha256.h"
#include "expert/pair.h"
#include "expert/row_encoding.h"
#include "gguf/piece.h"
#include "gguf/recipe.h"
#include "wire/frame.h"

namespace kvasir {

inline constexpr std::uint16_t kProtocolVersion = 1;

// SHA-256 of a node's raw Ed25519 public key.
using NodeId = Digest;

struct Hello {
    std::uint16_t oldest_version = kProtocolVersion;  // the range the backbone speaks
    std::uint16_t newest_version = kProtocolVersion;
    std::string build;                     // "kvasir 0.1.0 (ggml 0.25.1)": for people, not compared
    std::vector<std::string> arithmetics;  // acceptable, best first
    Digest model_id{};
    std::uint64_t payload_limit = 0;  // largest frame it takes
};

struct Welcome {
    std::uint16_t version = kProtocolVersion;
    std::string build;
    std::string arithmetic;  // one of the hello's
    Digest model_id{};
    std::uint64_t epoch = 0;  // of the piece set; rises with every change; never 0
    std::vector<Piece> pieces;
    std::uint64_t payload_limit = 0;  // largest frame it takes
    std::uint32_t window = 0;         // credit: compute requests that may be unanswered at once
    std::uint32_t threads = 0;
};

// Asks for one output row per pair. `rows` and `pairs` alias the payload on decoding (lifetime of the frame).
struct Compute {
    std::uint64_t epoch = 0;
    std::uint32_t layer = 0;
    std::uint32_t hidden = 0;
    Recipe recipe;
    RowEncoding encoding = RowEncoding::f32;
    std::span<const Pair> pairs;  // global expert ids
    ByteSpan rows;                // [n] of row_bytes(encoding, hidden); 4-byte aligned on decoding
};

struct ComputeResult {
    std::uint32_t hidden = 0;
    RowEncoding encoding = RowEncoding::f32;
    std::uint32_t queued_us = 0;   // waiting in the worker
    std::uint32_t compute_us = 0;  // computing, of the whole batch this was part of
    ByteSpan rows;                 // [pairs] of row_bytes(encoding, hidden); 4-byte aligned on decoding
};

// Values are wire format: never renumber.
enum class WireErrorCode : std::uint16_t {
    bad_request = 1,  // the payload breaks the rules; the text says which
    version = 2,      // no common protocol version
    arithmetic = 3,   // no common arithmetic
    model = 4,        // another model id
    epoch = 5,        // the piece set has changed
    not_held = 6,     // a layer or expert outside the pieces
    recipe = 7,       // a recipe this worker cannot compute
    too_large = 8,
    overloaded = 9,  // over the window
    draining = 10,
    not_admitted = 11,  // the backbone's id is not on the allow-list
    internal = 12,
};

struct WireError {
    WireErrorCode code = WireErrorCode::internal;
    std::string text;
};
const char* error_code_name(WireErrorCode code);

struct Pong {
    std::uint32_t queued = 0;  // requests waiting in the worker
    std::uint32_t sessions = 0;
};

struct Update {
    std::uint64_t epoch = 0;
    std::vector<Piece> pieces;
};

ByteVector encode(const Hello& message);
ByteVector encode(const Welcome& message);
ByteVector encode(const Compute& message);
ByteVector encode(const ComputeResult& message);
ByteVector encode(const WireError& message);
ByteVector encode(const Pong& message);
ByteVector encode(const Update& message);

Result<Hello> decode_hello(ByteSpan payload);
Result<Welcome> decode_welcome(ByteSpan payload);
Result<Compute> decode_compute(ByteSpan payload);
Result<ComputeResult> decode_result(ByteSpan payload);
Result<WireError> decode_error(ByteSpan payload);
Result<Pong> decode_pong(ByteSpan payload);
Result<Update> decode_update(ByteSpan payload);

// The payload of a result whose rows are still to be computed: header in place, rows zero; `rows` points into it, so
// that an engine writes where the frame is sent from, without a copy. `set_result_times` completes it.
struct ResultBuffer {
    ByteVector payload;
    std::span<std::byte> rows;  // 4-byte aligned
};
ResultBuffer make_result_buffer(std::uint32_t pairs, std::uint32_t hidden, RowEncoding encoding);
void set_result_times(ResultBuffer& buffer, std::uint32_t queued_us, std::uint32_t compute_us);

}  // namespace kvasir
