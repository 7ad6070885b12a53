// Small things about text that HTTP needs.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace kvasir::http {

// ASCII only, as field names and units are.
bool equal_ignoring_case(std::string_view a, std::string_view b);

// Without spaces and tabs at either end.
std::string_view trimmed(std::string_view text);

// At most `limit` bytes of what a stranger sent, with everything but printable ASCII replaced: fit for a message.
std::string printable(std::string_view text, std::size_t limit);

// One path segment: everything but unreserved characters as %XX.
std::string percent_encoded(std::string_view segment);
// None for a '%' that two hex digits do not follow.
std::optional<std::string> percent_decoded(std::string_view text);

}  // namespace kvasir::http
