// A byte-level BPE tokenizer of any size: it can write and read every text, and has the ChatML control tokens.
#pragma once

#include <gguf.h>

#include <cstdint>

namespace kvasir::synth {

// 256 bytes, one merge, and the three control tokens.
inline constexpr std::uint32_t kSmallestVocabulary = 260;

// Adds the tokenizer.* keys for `size` ≥ kSmallestVocabulary tokens: bytes, merges of letters ("a"+"b", " a"+"b",
// "ab"+"c", …) in a fixed order, unused tokens where those run out, control tokens last.
void add_tokenizer(gguf_context* metadata, std::uint32_t size);

}  // namespace kvasir::synth
