#include "synth/llama_run.h"

#include <ggml-backend.h>
#include <llama.h>

#include <cstdint>
#include <memory>

namespace kvasir {
namespace {

void collect_log(ggml_log_level level, const char* text, void* run) {
    if (level == GGML_LOG_LEVEL_WARN || level == GGML_LOG_LEVEL_ERROR) static_cast<LlamaRun*>(run)->log += text;
}

// "ffn_moe_topk-3" → {"ffn_moe_topk", 3}; layer -1 for other names.
std::pair<std::string, int> split_name(const std::string& name) {
    const std::size_t dash = name.rfind('-');
    if (dash == std::string::npos || dash + 1 == name.size() || name[dash + 1] > '9') return {name, -1};
    return {name.substr(0, dash), std::stoi(name.substr(dash + 1))};
}

bool observe(ggml_tensor* tensor, bool ask, void* user) {
    auto* run = static_cast<LlamaRun*>(user);
    const auto [name, layer] = split_name(tensor->name);
    if (name.starts_with("ffn_moe")) run->operations[layer].insert(name);
    if (name != "ffn_moe_topk") return !ask;
    if (ask) return true;
    for (std::int64_t token = 0; token < tensor->ne[1]; ++token) {
        for (std::int64_t slot = 0; slot < tensor->ne[0]; ++slot) {
            std::int32_t expert = 0;
            const auto at =
                static_cast<std::size_t>(token) * tensor->nb[1] + static_cast<std::size_t>(slot) * tensor->nb[0];
            ggml_backend_tensor_get(tensor, &expert, at, sizeof(expert));
            run->chosen[layer].insert(expert);
        }
    }
    return true;
}

std::string round_trip(const llama_vocab* vocab, const std::string& text) {
    std::vector<llama_token> tokens(text.size() + 8);
    const int count = llama_tokenize(vocab, text.data(), static_cast<int>(text.size()), tokens.data(),
                                     static_cast<int>(tokens.size()), false, true);
    if (count < 0) return "";
    std::string back(text.size() * 4 + 64, '\0');
    const int length =
        llama_detokenize(vocab, tokens.data(), count, back.data(), static_cast<int>(back.size()), false, true);
    back.resize(length < 0 ? 0 : static_cast<std::size_t>(length));
    return back;
}

void decode(LlamaRun& run, llama_context* context, const llama_vocab* vocab, const std::vector<int>& tokens) {
    llama_batch batch = llama_batch_init(static_cast<int>(tokens.size()), 0, 1);
    for (std::size_t index = 0; index < tokens.size(); ++index) {
        batch.token[index] = tokens[index];
        batch.pos[index] = static_cast<llama_pos>(index);
        batch.n_seq_id[index] = 1;
        batch.seq_id[index][0] = 0;
        batch.logits[index] = 1;
    }
    batch.n_tokens = static_cast<int>(tokens.size());
    run.decoded = llama_decode(context, batch) == 0;
    for (std::size_t index = 0; run.decoded && index < tokens.size(); ++index) {
        const float* row = llama_get_logits_ith(context, static_cast<int>(index));
        run.logits.emplace_back(row, row + llama_vocab_n_tokens(vocab));
    }
    llama_batch_free(batch);
}

}  // namespace

LlamaRun run_llama(const std::filesystem::path& path, const std::vector<int>& tokens, const std::string& text) {
    LlamaRun run;
    llama_log_set(collect_log, &run);
    llama_model_params model_params = llama_model_default_params();
    model_params.use_extra_bufts = false;
    model_params.load_mtp = true;
    std::unique_ptr<llama_model, decltype(&llama_model_free)> model(
        llama_model_load_from_file(path.c_str(), model_params), llama_model_free);
    if (model) {
        run.loaded = true;
        llama_context_params params = llama_context_default_params();
        params.n_ctx = 256;
        params.n_threads = 1;
        params.n_threads_batch = 1;
        params.cb_eval = observe;
        params.cb_eval_user_data = &run;
        std::unique_ptr<llama_context, decltype(&llama_free)> context(llama_init_from_model(model.get(), params),
                                                                      llama_free);
        const llama_vocab* vocab = llama_model_get_vocab(model.get());
        run.round_trip = round_trip(vocab, text);
        if (context) decode(run, context.get(), vocab, tokens);
    }
    llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
    return run;
}

}  // namespace kvasir
