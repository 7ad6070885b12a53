#include "http/text.h"

#include <fmt/format.h>

#include <algorithm>

namespace kvasir::http {
namespace {

char lower(char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

bool is_unreserved(char c) {
    const char folded = lower(c);
    return (folded >= 'a' && folded <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_' || c == '~';
}

int hex_digit(char c) {
    const char folded = lower(c);
    if (c >= '0' && c <= '9') return c - '0';
    return folded >= 'a' && folded <= 'f' ? folded - 'a' + 10 : -1;
}

}  // namespace

bool equal_ignoring_case(std::string_view a, std::string_view b) {
    return std::ranges::equal(a, b, {}, lower, lower);
}

std::string_view trimmed(std::string_view text) {
    constexpr std::string_view kBlank = " \t";
    const std::size_t first = text.find_first_not_of(kBlank);
    if (first == std::string_view::npos) return {};
    return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

std::string printable(std::string_view text, std::size_t limit) {
    std::string shown(text.substr(0, limit));
    for (char& c : shown) {
        if (c < ' ' || c > '~') c = '?';
    }
    if (text.size() > limit) shown += "…";
    return shown;
}

std::string percent_encoded(std::string_view segment) {
    std::string encoded;
    for (const char c : segment) {
        if (is_unreserved(c)) {
            encoded += c;
        } else {
            encoded += fmt::format("%{:02X}", static_cast<unsigned char>(c));
        }
    }
    return encoded;
}

std::optional<std::string> percent_decoded(std::string_view text) {
    std::string decoded;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] != '%') {
            decoded += text[i];
            continue;
        }
        const int high = i + 2 < text.size() ? hex_digit(text[i + 1]) : -1;
        const int low = i + 2 < text.size() ? hex_digit(text[i + 2]) : -1;
        if (high < 0 || low < 0) return std::nullopt;
        decoded += static_cast<char>(high * 16 + low);
        i += 2;
    }
    return decoded;
}

}  // namespace kvasir::http
