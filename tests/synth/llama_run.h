// Loads a model with libllama and decodes a few tokens.
#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace kvasir {

struct LlamaRun {
    bool loaded = false;
    bool decoded = false;
    std::string log;                                  // llama.cpp's warnings and errors
    std::vector<std::vector<float>> logits;           // one row per token
    std::string round_trip;                           // `text` tokenised and turned back
    std::map<int, std::set<int>> chosen;              // experts chosen by any token, by layer
    std::map<int, std::set<std::string>> operations;  // names of the graph's FFN nodes, by layer
};

// Loads `model`, its MTP blocks too, and decodes `tokens` in one batch.
LlamaRun run_llama(const std::filesystem::path& model, const std::vector<int>& tokens, const std::string& text);

}  // namespace kvasir
