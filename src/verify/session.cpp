#include "verify/session.h"

#include <ggml-backend.h>
#include <llama.h>

#include <cstdlib>
#include <cstring>
#include <limits>
#include <mutex>
#include <optional>

#include "expert/engine.h"

namespace kvasir {
namespace {

struct Complaints {
    std::mutex mutex;
    std::string last;
};

Complaints& complaints() {
    static Complaints instance;
    return instance;
}

void keep_complaint(ggml_log_level level, const char* text, void*) {
    if (level != GGML_LOG_LEVEL_ERROR) return;
    Complaints& kept = complaints();
    std::lock_guard lock(kept.mutex);
    kept.last = text;
    while (!kept.last.empty() && kept.last.back() == '\n')
        kept.last.pop_back();
}

// The layer of a tensor that may be the last of an expert group, as build_moe_ffn names them: "ffn_moe_down-3".
std::optional<std::uint32_t> expert_output_layer(std::string_view name) {
    for (std::string_view prefix : {"ffn_moe_down-", "ffn_moe_down_scaled-", "ffn_moe_down_biased-"}) {
        if (!name.starts_with(prefix)) continue;
        return static_cast<std::uint32_t>(std::strtoul(name.data() + prefix.size(), nullptr, 10));
    }
    return std::nullopt;
}

bool on_tensor(ggml_tensor* tensor, bool ask, void* user_data) {
    const std::optional<std::uint32_t> layer = expert_output_layer(tensor->name);
    if (ask || !layer) return layer.has_value();
    auto& record = *static_cast<ExpertRecord*>(user_data);
    const auto count = static_cast<std::size_t>(ggml_nelements(tensor));
    // A bias or a scale is added to what was taken for the output a moment ago.
    const ggml_tensor* input = tensor->src[0];
    if (tensor->op != GGML_OP_MUL_MAT_ID && input != nullptr && expert_output_layer(input->name) == layer) {
        record.remove_last(*layer, count);
    }
    std::vector<float> values(count);
    ggml_backend_tensor_get(tensor, values.data(), 0, ggml_nbytes(tensor));
    record.add(*layer, static_cast<std::uint32_t>(tensor->ne[0]), values);
    return true;
}

}  // namespace

void prepare_llama() {
    select_exact_kernels();
    llama_log_set(keep_complaint, nullptr);
    llama_backend_init();
}

std::string llama_complaint() {
    Complaints& kept = complaints();
    std::lock_guard lock(kept.mutex);
    return kept.last.empty() ? "no reason given" : kept.last;
}

Result<std::shared_ptr<const LlamaModel>> LlamaModel::load(const std::filesystem::path& path, bool repacked) {
    llama_model_params params = llama_model_default_params();
    params.use_extra_bufts = repacked;
    params.load_mode = LLAMA_LOAD_MODE_MMAP;
    params.n_gpu_layers = 0;
    llama_model* model = llama_model_load_from_file(path.c_str(), params);
    if (model == nullptr) {
        return fail(ErrorKind::invalid, "llama.cpp cannot load {}: {}", path.string(), llama_complaint());
    }
    std::shared_ptr<const LlamaModel> loaded(new LlamaModel(model));
    if (llama_model_has_encoder(model)) {
        return fail(ErrorKind::unsupported, "{}: encoder models are not served", path.string());
    }
    return loaded;
}

LlamaModel::~LlamaModel() {
    llama_model_free(model_);
}

std::uint32_t LlamaModel::vocabulary() const {
    return static_cast<std::uint32_t>(llama_vocab_n_tokens(llama_model_get_vocab(model_)));
}

std::uint32_t LlamaModel::trained_context() const {
    return static_cast<std::uint32_t>(std::max(llama_model_n_ctx_train(model_), 1));
}

Result<std::vector<Token>> LlamaModel::tokenize(std::string_view text) const {
    if (text.size() > std::numeric_limits<std::int32_t>::max() / 2) {
        return fail(ErrorKind::usage, "a text of {} bytes is too long", text.size());
    }
    const llama_vocab* vocab = llama_model_get_vocab(model_);
    if (llama_vocab_type(vocab) == LLAMA_VOCAB_TYPE_NONE) {
        return fail(ErrorKind::unsupported, "the model has no tokenizer");
    }
    std::vector<Token> tokens(text.size() + 2);
    const int count = llama_tokenize(vocab, text.data(), static_cast<std::int32_t>(text.size()), tokens.data(),
                                     static_cast<std::int32_t>(tokens.size()), true, false);
    if (count <= 0) return fail(ErrorKind::invalid, "the model's tokenizer makes no tokens of the text");
    tokens.resize(static_cast<std::size_t>(count));
    return tokens;
}

std::string LlamaModel::piece(Token token) const {
    std::string text(64, '\0');
    const llama_vocab* vocab = llama_model_get_vocab(model_);
    int length = llama_token_to_piece(vocab, token, text.data(), static_cast<std::int32_t>(text.size()), 0, false);
    if (length < 0) {
        text.resize(static_cast<std::size_t>(-length));
        length = llama_token_to_piece(vocab, token, text.data(), static_cast<std::int32_t>(text.size()), 0, false);
    }
    text.resize(static_cast<std::size_t>(std::max(length, 0)));
    return text;
}

bool LlamaModel::ends_generation(Token token) const {
    return llama_vocab_is_eog(llama_model_get_vocab(model_), token);
}

Result<std::unique_ptr<LlamaSession>> LlamaSession::create(std::shared_ptr<const LlamaModel> model,
                                                           const LlamaOptions& options) {
    std::unique_ptr<LlamaSession> session(new LlamaSession(std::move(model), options));
    llama_context_params params = llama_context_default_params();
    params.n_ctx = options.context;
    params.n_batch = options.batch;
    params.n_ubatch = options.batch;
    params.n_seq_max = 1;
    params.n_threads = options.threads;
    params.n_threads_batch = options.threads;
    if (options.record != nullptr) {
        params.cb_eval = on_tensor;
        params.cb_eval_user_data = options.record;
    }
    session->context_ = llama_init_from_model(session->model_->get(), params);
    if (session->context_ == nullptr) {
        return fail(ErrorKind::unsupported, "llama.cpp cannot make a context of {} tokens: {}", options.context,
                    llama_complaint());
    }
    return session;
}

LlamaSession::~LlamaSession() {
    if (context_ != nullptr) llama_free(context_);
}

Status LlamaSession::decode(std::span<const Token> tokens) {
    if (tokens.empty() || tokens.size() > options_.batch) {
        return fail(ErrorKind::internal, "a batch of {} tokens, limit {}", tokens.size(), options_.batch);
    }
    const auto count = static_cast<std::int32_t>(tokens.size());
    llama_batch batch = llama_batch_init(count, 0, 1);
    batch.n_tokens = count;
    for (std::int32_t i = 0; i < count; ++i) {
        batch.token[i] = tokens[static_cast<std::size_t>(i)];
        batch.pos[i] = position_ + i;
        batch.n_seq_id[i] = 1;
        batch.seq_id[i][0] = 0;
        batch.logits[i] = 1;
    }
    const int code = llama_decode(context_, batch);
    llama_batch_free(batch);
    if (code != 0) {
        return fail(ErrorKind::internal, "llama.cpp could not compute {} tokens at position {} (code {}): {}", count,
                    position_, code, llama_complaint());
    }
    position_ += count;
    decoded_ = tokens.size();
    return {};
}

std::span<const float> LlamaSession::logits() const {
    return {llama_get_logits(context_), decoded_ * model_->vocabulary()};
}

std::span<const float> LlamaSession::last_logits() const {
    return logits().last(model_->vocabulary());
}

void LlamaSession::clear() {
    llama_memory_clear(llama_get_memory(context_), true);
    position_ = 0;
    decoded_ = 0;
}

}  // namespace kvasir
