#include "backbone/evidence.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/hex.h"
#include "base/user_directories.h"
#include "net/signature.h"

namespace kvasir {
namespace {

using Json = nlohmann::json;

constexpr std::uint32_t kVersion = 1;
constexpr std::uint64_t kFileLimit = 64 << 20;
constexpr std::size_t kNameLimit = 256;

// Reads a JSON object's fields one by one; the first that is missing or wrong is remembered.
class Fields {
  public:
    explicit Fields(const Json& json) : json_(json) {}

    std::string text(const char* key) {
        const Json* value = find(key);
        if (value != nullptr && value->is_string()) return value->get<std::string>();
        wrong(key, "a string");
        return {};
    }
    std::uint64_t number(const char* key, std::uint64_t most) {
        const Json* value = find(key);
        if (value != nullptr && value->is_number_unsigned() && value->get<std::uint64_t>() <= most) {
            return value->get<std::uint64_t>();
        }
        wrong(key, "a whole number that can be");
        return 0;
    }
    ByteVector bytes(const char* key) {
        Result<ByteVector> bytes = bytes_from_hex(text(key));
        if (bytes) return std::move(*bytes);
        wrong(key, "hex digits");
        return {};
    }
    Digest digest(const char* key) {
        Result<Digest> digest = digest_from_hex(text(key));
        if (digest) return *digest;
        wrong(key, "64 hex digits");
        return {};
    }
    RowEncoding encoding(const char* key) { return static_cast<RowEncoding>(number(key, kLastRowEncoding)); }
    const Status& status() const { return status_; }

  private:
    const Json* find(const char* key) const {
        const auto found = json_.find(key);
        return found == json_.end() ? nullptr : &*found;
    }
    void wrong(const char* key, const char* expected) {
        if (status_) status_ = fail(ErrorKind::invalid, "evidence: \"{}\" is missing or not {}", key, expected);
    }

    const Json& json_;
    Status status_;
};

std::string recipe_hex(const Recipe& recipe) {
    ByteWriter writer;
    write_recipe(writer, recipe);
    return hex(writer.buffer());
}

Status check_lengths(const Evidence& evidence) {
    const AnswerTerms& terms = evidence.terms;
    const std::size_t row = row_bytes(terms.question, terms.hidden);
    const std::size_t answer = row_bytes(terms.answer, terms.hidden);
    if (row != 0 && evidence.row.size() == row && answer != 0 && evidence.answer.size() == answer) return {};
    return fail(ErrorKind::invalid, "evidence: rows of {} and {} bytes are not {} columns in encodings {} and {}",
                evidence.row.size(), evidence.answer.size(), terms.hidden, static_cast<int>(terms.question),
                static_cast<int>(terms.answer));
}

ByteSpan without_signature(const Evidence& evidence) {
    return ByteSpan(evidence.attestation).first(evidence.attestation.size() - sizeof(Signature));
}

}  // namespace

std::string to_json(const Evidence& evidence) {
    const AnswerTerms& terms = evidence.terms;
    const Result<Attestation> attestation = decode_attestation(evidence.attestation);
    Json json = {
        {"kvasir_evidence", kVersion},
        {"model_id", to_hex(evidence.context.model_id)},
        {"backbone", to_hex(evidence.context.backbone)},
        {"arithmetic", evidence.context.arithmetic},
        {"layer", terms.layer},
        {"expert", terms.expert},
        {"hidden", terms.hidden},
        {"recipe", recipe_hex(terms.recipe)},
        {"row_encoding", static_cast<int>(terms.question)},
        {"answer_encoding", static_cast<int>(terms.answer)},
        {"row", hex(evidence.row)},
        {"answer", hex(evidence.answer)},
        {"right_answer", hex(evidence.right_answer)},
        {"attestation", hex(evidence.attestation)},
    };
    if (attestation) json["worker"] = to_hex(node_id(attestation->key));
    return json.dump(2) + "\n";
}

Result<Evidence> evidence_from_json(std::string_view text) {
    const Json json = Json::parse(text, nullptr, false);
    if (!json.is_object()) return fail(ErrorKind::invalid, "evidence: it is not a JSON object");
    Fields fields(json);
    if (fields.number("kvasir_evidence", UINT32_MAX) != kVersion && fields.status()) {
        return fail(ErrorKind::unsupported, "evidence: it is of another version than {}", kVersion);
    }
    Evidence evidence;
    evidence.context = {fields.digest("model_id"), fields.digest("backbone"), fields.text("arithmetic")};
    AnswerTerms& terms = evidence.terms;
    terms.layer = static_cast<std::uint32_t>(fields.number("layer", UINT32_MAX));
    terms.expert = static_cast<std::uint32_t>(fields.number("expert", UINT32_MAX));
    terms.hidden = static_cast<std::uint32_t>(fields.number("hidden", UINT32_MAX));
    const ByteVector recipe_bytes = fields.bytes("recipe");
    terms.question = fields.encoding("row_encoding");
    terms.answer = fields.encoding("answer_encoding");
    evidence.row = fields.bytes("row");
    evidence.answer = fields.bytes("answer");
    evidence.right_answer = fields.bytes("right_answer");
    evidence.attestation = fields.bytes("attestation");
    if (!fields.status()) return fail(fields.status().error());
    if (evidence.context.arithmetic.size() > kNameLimit) {
        return fail(ErrorKind::invalid, "evidence: the arithmetic's name is longer than {} bytes", kNameLimit);
    }
    const auto control = [](unsigned char c) { return c < 0x20 || c == 0x7F; };
    if (std::ranges::any_of(evidence.context.arithmetic, control)) {
        return fail(ErrorKind::invalid, "evidence: the arithmetic's name has control characters");
    }
    ByteReader reader(recipe_bytes);
    Result<Recipe> recipe = read_recipe(reader);
    if (!recipe) return fail(recipe.error().within("evidence"));
    if (!reader.finished()) return fail(ErrorKind::invalid, "evidence: a recipe of {} bytes", recipe_bytes.size());
    terms.recipe = *recipe;
    if (Status fits = check_lengths(evidence); !fits) return fail(fits.error());
    return evidence;
}

Result<std::filesystem::path> save(const Evidence& evidence, const std::filesystem::path& directory) {
    std::error_code failed;
    std::filesystem::create_directories(directory, failed);
    if (failed) return fail(ErrorKind::io, "cannot make the directory {}: {}", directory.string(), failed.message());
    const std::string digest = to_hex(sha256(evidence.attestation)).substr(0, 12);
    const std::filesystem::path path =
        directory / fmt::format("{:%Y%m%dT%H%M%SZ}-layer-{}-expert-{}-{}.json", fmt::gmtime(std::time(nullptr)),
                                evidence.terms.layer, evidence.terms.expert, digest);
    if (Status written = write_text_file(path, to_json(evidence)); !written) return fail(written.error());
    return path;
}

Result<Evidence> load_evidence(const std::filesystem::path& path) {
    Result<std::string> text = read_text_file(path, kFileLimit);
    if (!text) return fail(text.error());
    Result<Evidence> evidence = evidence_from_json(*text);
    if (!evidence) return fail(evidence.error().within(path.string()));
    return evidence;
}

std::filesystem::path default_evidence_directory() {
    return state_directory() / "evidence";
}

Result<NodeId> signer_of(const Evidence& evidence) {
    const Result<Attestation> attestation = decode_attestation(evidence.attestation);
    if (!attestation) return fail(ErrorKind::mismatch, "{}", attestation.error().message);
    const Digest digest = answer_digest(evidence.terms, sha256(evidence.row), evidence.answer);
    const bool listed = std::ranges::any_of(attestation->answers, [&](const AttestedAnswers& answers) {
        return std::ranges::find(answers.digests, digest) != answers.digests.end();
    });
    if (!listed) return fail(ErrorKind::mismatch, "this answer to this question is not among those that were signed");
    const ByteVector text = attested_text(evidence.context, without_signature(evidence));
    if (!verify(attestation->key, text, attestation->signature)) {
        return fail(ErrorKind::mismatch, "the signature is not one of these answers with the key beside it");
    }
    return node_id(attestation->key);
}

}  // namespace kvasir
