#include "market/tokens.h"

#include <charconv>
#include <optional>
#include <vector>

#include "base/hex.h"
#include "base/hmac.h"

namespace kvasir::market {
namespace {

constexpr std::size_t kLongest = 256;

ByteSpan bytes_of(std::string_view text) {
    return std::as_bytes(std::span(text));
}

std::string sealed(std::string_view secret, const std::string& body) {
    return body + "." + to_hex(hmac_sha256(bytes_of(secret), bytes_of(body)));
}

// The fields of a sealed text, or none where the seal is not this hub's.
std::optional<std::vector<std::string_view>> open_sealed(std::string_view secret, std::string_view text) {
    const std::size_t dot = text.rfind('.');
    if (text.size() > kLongest || dot == std::string_view::npos) return std::nullopt;
    Result<Digest> seal = digest_from_hex(text.substr(dot + 1));
    std::string_view body = text.substr(0, dot);
    if (!seal || !equal_in_constant_time(*seal, hmac_sha256(bytes_of(secret), bytes_of(body)))) return std::nullopt;
    std::vector<std::string_view> fields;
    for (std::size_t start = 0; start <= body.size();) {
        const std::size_t end = std::min(body.find('.', start), body.size());
        fields.push_back(body.substr(start, end - start));
        start = end + 1;
    }
    return fields;
}

template <class T>
bool parse(std::string_view text, T& value) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc{} && end == text.data() + text.size();
}

ByteVector message(std::string_view purpose, ByteSpan what) {
    ByteWriter writer;
    writer.append(bytes_of(purpose));
    writer.append(what);
    return std::move(writer.buffer());
}

}  // namespace

ByteVector login_message(std::string_view challenge) {
    return message("kvasir login/1", bytes_of(challenge));
}

ByteVector ownership_message(const NodeId& node) {
    return message("kvasir owner/1", node);
}

std::string make_challenge(std::string_view secret, const NodeId& node, Instant expires, const Nonce& nonce) {
    return sealed(secret, fmt::format("kvc1.{}.{}.{}", to_hex(node), expires.time_since_epoch().count(), hex(nonce)));
}

Status check_challenge(std::string_view secret, const NodeId& node, Instant now, std::string_view challenge) {
    const auto fields = open_sealed(secret, challenge);
    Duration::rep expires = 0;
    if (!fields || fields->size() != 4 || (*fields)[0] != "kvc1" || !parse((*fields)[2], expires)) {
        return fail(ErrorKind::invalid, "this challenge is none of this hub's: ask for one");
    }
    if ((*fields)[1] != to_hex(node)) {
        return fail(ErrorKind::invalid, "this challenge was given to another node: ask for one");
    }
    if (now >= Instant(Duration(expires))) {
        return fail(ErrorKind::unavailable, "this challenge is too old: ask for another");
    }
    return {};
}

std::string make_token(std::string_view secret, const Token& token) {
    return sealed(secret, fmt::format("kvt1.{}.{}.{}", to_hex(token.node), token.generation,
                                      token.expires.time_since_epoch().count()));
}

Result<Token> check_token(std::string_view secret, Instant now, std::string_view text) {
    const auto fields = open_sealed(secret, text);
    Token token;
    Duration::rep expires = 0;
    if (!fields || fields->size() != 4 || (*fields)[0] != "kvt1" || !parse((*fields)[2], token.generation) ||
        !parse((*fields)[3], expires)) {
        return fail(ErrorKind::invalid, "this token is none of this hub's: log in");
    }
    Result<NodeId> node = digest_from_hex((*fields)[1]);
    if (!node) return fail(node.error());
    token.node = *node;
    token.expires = Instant(Duration(expires));
    if (now >= token.expires) return fail(ErrorKind::unavailable, "this token is too old: log in again");
    return token;
}

}  // namespace kvasir::market
