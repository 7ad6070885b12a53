#include "synth/tokenizer.h"

#include <fmt/format.h>

#include <array>
#include <string>
#include <vector>

namespace kvasir::synth {
namespace {

// GGUF's token types.
constexpr std::int32_t kNormal = 1;
constexpr std::int32_t kControl = 3;
constexpr std::int32_t kUnused = 5;

constexpr std::string_view kLetters = "etaoinshrdlucmfwypvbgkjqxz";
constexpr const char* kSpace = "\u0120";  // how byte-level BPE writes a space
constexpr std::array kControlTokens = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};

constexpr const char* kChatTemplate =
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

std::string utf8(std::uint32_t point) {
    if (point < 0x80) return {static_cast<char>(point)};
    return {static_cast<char>(0xC0 | (point >> 6)), static_cast<char>(0x80 | (point & 0x3F))};
}

// GPT-2's printable stand-in for each byte.
std::vector<std::string> byte_tokens() {
    std::vector<std::string> tokens;
    std::uint32_t next = 256;
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
        const bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
        tokens.push_back(utf8(printable ? byte : next++));
    }
    return tokens;
}

struct Vocabulary {
    std::vector<std::string> tokens;
    std::vector<std::string> merges;
    std::size_t limit = 0;

    bool full() const { return tokens.size() >= limit; }
    void merge(const std::string& left, const std::string& right) {
        if (full()) return;
        tokens.push_back(left + right);
        merges.push_back(left + " " + right);
    }
};

// Every token has one way to be made, so all of them are different.
void add_merges(Vocabulary& vocabulary) {
    std::vector<std::string> pairs;
    for (char first : kLetters) {
        vocabulary.merge(kSpace, {first});
        for (char second : kLetters)
            pairs.push_back({first, second});
    }
    for (const std::string& pair : pairs)
        vocabulary.merge({pair[0]}, {pair[1]});
    for (const std::string& pair : pairs)
        vocabulary.merge(std::string(kSpace) + pair[0], {pair[1]});
    for (const std::string& pair : pairs) {
        for (char third : kLetters)
            vocabulary.merge(pair, {third});
    }
    for (const std::string& pair : pairs) {
        if (vocabulary.full()) return;
        for (const std::string& other : pairs)
            vocabulary.merge(pair, other);
    }
}

void set_strings(gguf_context* metadata, const char* key, const std::vector<std::string>& texts) {
    std::vector<const char*> pointers;
    pointers.reserve(texts.size());
    for (const std::string& text : texts)
        pointers.push_back(text.c_str());
    gguf_set_arr_str(metadata, key, pointers.data(), pointers.size());
}

}  // namespace

void add_tokenizer(gguf_context* metadata, std::uint32_t size) {
    Vocabulary vocabulary{byte_tokens(), {}, size - kControlTokens.size()};
    add_merges(vocabulary);
    std::vector<std::int32_t> types(vocabulary.tokens.size(), kNormal);
    while (!vocabulary.full()) {
        vocabulary.tokens.push_back(fmt::format("<|unused_{}|>", vocabulary.tokens.size()));
        types.push_back(kUnused);
    }
    const auto first_control = static_cast<std::uint32_t>(vocabulary.tokens.size());
    for (const char* token : kControlTokens) {
        vocabulary.tokens.emplace_back(token);
        types.push_back(kControl);
    }
    gguf_set_val_str(metadata, "tokenizer.ggml.model", "gpt2");
    gguf_set_val_str(metadata, "tokenizer.ggml.pre", "qwen2");
    set_strings(metadata, "tokenizer.ggml.tokens", vocabulary.tokens);
    gguf_set_arr_data(metadata, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, types.data(), types.size());
    set_strings(metadata, "tokenizer.ggml.merges", vocabulary.merges);
    gguf_set_val_u32(metadata, "tokenizer.ggml.bos_token_id", first_control);
    gguf_set_val_u32(metadata, "tokenizer.ggml.padding_token_id", first_control);
    gguf_set_val_u32(metadata, "tokenizer.ggml.eos_token_id", first_control + 2);
    gguf_set_val_bool(metadata, "tokenizer.ggml.add_bos_token", false);
    gguf_set_val_str(metadata, "tokenizer.chat_template", kChatTemplate);
}

}  // namespace kvasir::synth
