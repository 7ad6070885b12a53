#include "http/file_response.h"

#include "http/range.h"
#include "http/text.h"

namespace kvasir::http {
namespace {

// Whether a list of entity tags (or "*") names this one; weak comparison, as If-None-Match wants it.
bool names(std::string_view list, std::string_view etag) {
    while (!list.empty()) {
        const std::size_t comma = std::min(list.find(','), list.size());
        std::string_view item = trimmed(list.substr(0, comma));
        if (item.starts_with("W/")) item.remove_prefix(2);
        if (item == etag || item == "*") return true;
        list.remove_prefix(std::min(comma + 1, list.size()));
    }
    return false;
}

bool is_unchanged(const Request& request, std::string_view etag) {
    const std::optional<std::string_view> known = request.find("If-None-Match");
    return known && names(*known, etag);
}

RangeRequest asked_for(const Request& request, const FileContent& content) {
    const std::optional<std::string_view> range = request.find("Range");
    if (!range || request.method != "GET") return {};
    // A range of something that has changed since would be spliced to the wrong bytes.
    const std::optional<std::string_view> condition = request.find("If-Range");
    if (condition && trimmed(*condition) != content.etag) return {};
    return parse_range(trimmed(*range), content.size);
}

}  // namespace

Response file_response(const Request& request, const FileContent& content) {
    Response response;
    response.fields = {{"Accept-Ranges", "bytes"}, {"ETag", content.etag}};
    if (is_unchanged(request, content.etag)) {
        response.status = 304;
        return response;
    }
    const RangeRequest asked = asked_for(request, content);
    if (asked.kind == RangeRequest::Kind::unsatisfiable) {
        Response refusal = error_response(416, fmt::format("the file has {} bytes", content.size));
        refusal.fields.push_back({"Content-Range", fmt::format("bytes */{}", content.size)});
        return refusal;
    }
    response.fields.push_back({"Content-Type", content.content_type});
    ByteRange part{0, content.size};
    if (asked.kind == RangeRequest::Kind::part) {
        part = asked.part;
        response.status = 206;
        response.fields.push_back({"Content-Range", content_range_field(part, content.size)});
    }
    response.body = FilePart{content.file, part.first, part.length};
    return response;
}

Response text_response(const Request& request, const std::shared_ptr<const std::string>& text, const std::string& etag,
                       const std::string& content_type) {
    Response response;
    response.fields = {{"ETag", etag}, {"Cache-Control", "no-cache"}};
    if (is_unchanged(request, etag)) {
        response.status = 304;
        return response;
    }
    response.fields.push_back({"Content-Type", content_type});
    response.body = text;
    return response;
}

}  // namespace kvasir::http
