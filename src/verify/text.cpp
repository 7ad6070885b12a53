#include "verify/text.h"

#include <random>
#include <system_error>

#include "base/files.h"

namespace kvasir {
namespace {

constexpr std::uint64_t kTextLimit = 64ULL << 20;
constexpr const char* kBundledText = "tales-heldout.txt";

VerifyText random_text(const LlamaModel& model, std::size_t count) {
    VerifyText text;
    text.source = "pseudo-random tokens (seed 1)";
    text.tokens.reserve(count);
    std::mt19937 random(1);  // its sequence is fixed by the standard, unlike a distribution's
    for (std::size_t i = 0; i < count; ++i)
        text.tokens.push_back(static_cast<Token>(random() % model.vocabulary()));
    return text;
}

}  // namespace

Result<VerifyText> verify_text(const LlamaModel& model, const std::filesystem::path& model_path,
                               const std::filesystem::path& file, std::size_t count) {
    std::filesystem::path chosen = file;
    if (chosen.empty()) {
        const std::filesystem::path bundled = model_path.parent_path() / kBundledText;
        std::error_code ignored;
        if (!std::filesystem::is_regular_file(bundled, ignored)) return random_text(model, count);
        chosen = bundled;
    }
    Result<std::string> content = read_text_file(chosen, kTextLimit);
    if (!content) return fail(content.error());
    if (content->empty()) return fail(ErrorKind::usage, "{}: there is no text in it", chosen.string());
    Result<std::vector<Token>> tokens = model.tokenize(*content);
    if (!tokens) return fail(tokens.error().within(chosen.string()));

    VerifyText text;
    text.source = chosen.filename().string();
    if (tokens->size() < count) text.source += fmt::format(", repeated after {} tokens", tokens->size());
    text.tokens.reserve(count);
    for (std::size_t i = 0; i < count; ++i)
        text.tokens.push_back((*tokens)[i % tokens->size()]);
    return text;
}

}  // namespace kvasir
