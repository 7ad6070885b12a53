#include "http/range.h"

#include <algorithm>
#include <charconv>

#include "http/text.h"

namespace kvasir::http {
namespace {

// Digits only, no sign, no space. A number too large for 64 bits means the largest: it lies behind every end.
std::optional<std::uint64_t> parse_position(std::string_view text) {
    auto digit = [](char c) { return c >= '0' && c <= '9'; };
    if (text.empty() || !std::ranges::all_of(text, digit)) return std::nullopt;
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    return error == std::errc{} ? number : UINT64_MAX;
}

RangeRequest part_or_nothing(std::uint64_t first, std::uint64_t length) {
    if (length == 0) return {RangeRequest::Kind::unsatisfiable, {}};
    return {RangeRequest::Kind::part, {first, length}};
}

}  // namespace

RangeRequest parse_range(std::string_view field, std::uint64_t size) {
    constexpr std::string_view kUnit = "bytes=";
    if (field.size() < kUnit.size() || !equal_ignoring_case(field.substr(0, kUnit.size()), kUnit)) return {};
    const std::string_view spec = trimmed(field.substr(kUnit.size()));
    const std::size_t dash = spec.find('-');
    if (dash == std::string_view::npos) return {};
    const std::string_view first_text = spec.substr(0, dash);
    const std::string_view last_text = spec.substr(dash + 1);
    const std::optional<std::uint64_t> last = parse_position(last_text);
    if (first_text.empty()) {
        if (!last) return {};
        const std::uint64_t length = std::min(*last, size);
        return part_or_nothing(size - length, length);
    }
    const std::optional<std::uint64_t> first = parse_position(first_text);
    if (!first || (!last && !last_text.empty()) || (last && *last < *first)) return {};
    if (*first >= size) return {RangeRequest::Kind::unsatisfiable, {}};
    const std::uint64_t end = last && *last < size ? *last + 1 : size;
    return part_or_nothing(*first, end - *first);
}

std::string range_field(const ByteRange& range) {
    return fmt::format("bytes={}-{}", range.first, range.first + range.length - 1);
}

Result<ContentRange> parse_content_range(std::string_view field) {
    const auto refused = [field] { return fail(ErrorKind::invalid, "Content-Range is '{}'", printable(field, 80)); };
    constexpr std::string_view kUnit = "bytes ";
    if (field.size() < kUnit.size() || !equal_ignoring_case(field.substr(0, kUnit.size()), kUnit)) return refused();
    const std::string_view spec = trimmed(field.substr(kUnit.size()));
    const std::size_t dash = spec.find('-');
    const std::size_t slash = spec.find('/');
    if (dash == std::string_view::npos || slash == std::string_view::npos || slash < dash) return refused();
    const std::optional<std::uint64_t> first = parse_position(spec.substr(0, dash));
    const std::optional<std::uint64_t> last = parse_position(spec.substr(dash + 1, slash - dash - 1));
    if (!first || !last || *last < *first || *last == UINT64_MAX) return refused();
    ContentRange content{{*first, *last - *first + 1}, std::nullopt};
    const std::string_view size_text = spec.substr(slash + 1);
    if (size_text == "*") return content;
    content.size = parse_position(size_text);
    if (!content.size || *last >= *content.size) return refused();
    return content;
}

std::string content_range_field(const ByteRange& range, std::uint64_t size) {
    return fmt::format("bytes {}-{}/{}", range.first, range.first + range.length - 1, size);
}

}  // namespace kvasir::http
