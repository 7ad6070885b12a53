// One run of llama.cpp: a model and a context with settings that are the same in every run that is compared bit by bit:
// memory mapped, not repacked, the default KV cache, one sequence, logits at all positions.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "verify/expert_record.h"

struct llama_model;
struct llama_context;

namespace kvasir {

using Token = std::int32_t;

// A loaded model. Every model loaded before the Kvasir backend is registered is stock llama.cpp, and stays so.
class LlamaModel {
  public:
    // repacked: weights are copied into llama.cpp's own fastest layouts, whose kernels give other last bits, instead of
    // being mapped.
    static Result<std::shared_ptr<const LlamaModel>> load(const std::filesystem::path& path, bool repacked = false);
    ~LlamaModel();
    LlamaModel(const LlamaModel&) = delete;
    LlamaModel& operator=(const LlamaModel&) = delete;

    std::uint32_t vocabulary() const;
    std::uint32_t trained_context() const;
    // With the beginning-of-text token where the model wants one. Fails for a model without a usable tokenizer.
    Result<std::vector<Token>> tokenize(std::string_view text) const;
    std::string piece(Token token) const;
    bool ends_generation(Token token) const;
    llama_model* get() const { return model_; }

  private:
    explicit LlamaModel(llama_model* model) : model_(model) {}
    llama_model* model_;
};

struct LlamaOptions {
    int threads = 1;
    std::uint32_t context = 512;     // tokens
    std::uint32_t batch = 128;       // the most tokens of one decode() call
    ExpertRecord* record = nullptr;  // stock only: gets every expert output row (through llama.cpp's eval callback)
};

// Not thread-safe.
class LlamaSession {
  public:
    static Result<std::unique_ptr<LlamaSession>> create(std::shared_ptr<const LlamaModel> model,
                                                        const LlamaOptions& options);
    ~LlamaSession();
    LlamaSession(const LlamaSession&) = delete;
    LlamaSession& operator=(const LlamaSession&) = delete;

    // Appends `tokens` to the sequence and computes them as one batch.
    Status decode(std::span<const Token> tokens);
    // The last decode's logits: [tokens][vocabulary], valid until the next.
    std::span<const float> logits() const;
    // The logits of its last position.
    std::span<const float> last_logits() const;
    // Forgets the sequence.
    void clear();
    llama_context* get() const { return context_; }

  private:
    LlamaSession(std::shared_ptr<const LlamaModel> model, const LlamaOptions& options)
        : model_(std::move(model)), options_(options) {}

    std::shared_ptr<const LlamaModel> model_;
    LlamaOptions options_;
    llama_context* context_ = nullptr;
    std::int32_t position_ = 0;
    std::size_t decoded_ = 0;
};

// llama.cpp's initialisation for this process: row-independent kernels, and of its log only warnings and errors, kept
// for the message of the Result that follows them.
void prepare_llama();
// What llama.cpp last complained about, or "no reason given".
std::string llama_complaint();

}  // namespace kvasir
