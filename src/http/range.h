// Byte ranges of HTTP (RFC 9110, section 14): what a client asks for, and what a server says it sends.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace kvasir::http {

struct ByteRange {
    std::uint64_t first = 0;
    std::uint64_t length = 0;
    bool operator==(const ByteRange&) const = default;
};

// What a Range field asks of a resource.
struct RangeRequest {
    enum class Kind { whole, part, unsatisfiable };
    Kind kind = Kind::whole;
    ByteRange part;  // within the resource, at least one byte; for Kind::part only
};

// Takes any bytes. "bytes=0-99", "bytes=100-" and "bytes=-100" of a resource of `size` bytes are parts, cut at its end;
// a range that begins after the end is unsatisfiable. What is malformed, in another unit, or several ranges at once is
// ignored, as the standard allows: the whole is sent.
RangeRequest parse_range(std::string_view field, std::uint64_t size);

// "bytes=FIRST-LAST" for at least one byte.
std::string range_field(const ByteRange& range);

// What a Content-Range field says is sent: "bytes 0-99/1234", "bytes 0-99/*".
struct ContentRange {
    ByteRange range;
    std::optional<std::uint64_t> size;  // of the whole resource
};
// Takes any bytes; what is no such field, or contradicts itself, is ErrorKind::invalid.
Result<ContentRange> parse_content_range(std::string_view field);
std::string content_range_field(const ByteRange& range, std::uint64_t size);

}  // namespace kvasir::http
