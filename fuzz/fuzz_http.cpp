// What HTTP parsing is our own, on anybody's bytes: ranges stay within their resource, what is written is read back the
// same, and a URL that is accepted is still that URL when it is written and read again.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "http/range.h"
#include "http/router.h"
#include "http/text.h"
#include "http/url.h"

namespace {

using namespace kvasir;

void require(bool condition) {
    if (!condition) std::abort();
}

void check_ranges(std::string_view text, std::uint64_t size) {
    const http::RangeRequest range = http::parse_range(text, size);
    if (range.kind == http::RangeRequest::Kind::part) {
        require(range.part.length > 0 && range.part.length <= size && range.part.first <= size - range.part.length);
        const http::RangeRequest again = http::parse_range(http::range_field(range.part), size);
        require(again.kind == range.kind && again.part == range.part);
    }
    const Result<http::ContentRange> sent = http::parse_content_range(text);
    if (!sent) return;
    require(sent->range.length > 0);
    if (sent->size) require(sent->range.first <= *sent->size - sent->range.length);
}

void check_urls(std::string_view text) {
    if (Result<http::Url> url = http::parse_url(text)) {
        Result<http::Url> again = http::parse_url(url->text());
        require(again && again->same_origin(*url) && again->target == url->target);
        require(url->text().find_first_of("\r\n ") == std::string::npos);
    }
    static const http::Url base = http::parse_url("https://host:1/dir/file?query").value();
    if (Result<http::Url> url = http::resolve(base, text)) require(http::parse_url(url->text()).has_value());
    require(http::parse_url(http::inside(base, text.substr(0, 512)).text()).has_value());
    require(http::percent_decoded(http::percent_encoded(text)) == text);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size < sizeof(std::uint64_t)) return 0;
    std::uint64_t resource = 0;
    std::memcpy(&resource, data, sizeof(resource));
    const std::string_view text(reinterpret_cast<const char*>(data) + sizeof(resource), size - sizeof(resource));
    check_ranges(text, resource);
    check_ranges(text, resource % 100);
    check_urls(text);
    http::Router router;
    router.add("GET", "/v1/models/{id}/files/{n}", [](const http::Request&, const http::PathParameters& path) {
        require(path.size() == 2 && !path[0].empty() && !path[1].empty());
        return http::Response{};
    });
    http::Request request;
    request.method = "GET";
    request.path = text;
    router.answer(request);
    return 0;
}
