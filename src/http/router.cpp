#include "http/router.h"

#include <optional>

#include "http/text.h"

namespace kvasir::http {
namespace {

// "/v1/models" → "v1", "models". A slash at the end makes an empty last segment, which is another path.
std::vector<std::string> split(std::string_view path) {
    std::vector<std::string> segments;
    while (!path.empty() && path.front() == '/') {
        path.remove_prefix(1);
        const std::size_t end = std::min(path.find('/'), path.size());
        segments.emplace_back(path.substr(0, end));
        path.remove_prefix(end);
    }
    return segments;
}

bool is_parameter(std::string_view segment) {
    return segment.size() > 2 && segment.front() == '{' && segment.back() == '}';
}

std::optional<PathParameters> match(const std::vector<std::string>& pattern, const std::vector<std::string>& path) {
    if (pattern.size() != path.size()) return std::nullopt;
    PathParameters parameters;
    for (std::size_t i = 0; i < path.size(); ++i) {
        if (!is_parameter(pattern[i])) {
            if (pattern[i] != path[i]) return std::nullopt;
        } else if (path[i].empty()) {
            return std::nullopt;
        } else {
            parameters.push_back(path[i]);
        }
    }
    return parameters;
}

}  // namespace

void Router::add(std::string method, std::string_view pattern, RouteHandler handler) {
    routes_.push_back({std::move(method), split(pattern), std::move(handler)});
}

Response Router::answer(const Request& request) const {
    std::vector<std::string> path;
    for (const std::string& segment : split(request.path)) {
        std::optional<std::string> decoded = percent_decoded(segment);
        if (!decoded) return error_response(400, "the path is not percent-encoded correctly");
        path.push_back(std::move(*decoded));
    }
    std::string allowed;
    for (const Route& route : routes_) {
        const std::optional<PathParameters> parameters = match(route.segments, path);
        if (!parameters) continue;
        const bool head = request.method == "HEAD" && route.method == "GET";
        if (head || route.method == request.method) return route.handler(request, *parameters);
        allowed += (allowed.empty() ? "" : ", ") + route.method + (route.method == "GET" ? ", HEAD" : "");
    }
    if (allowed.empty()) return error_response(404, "there is nothing under this path");
    Response response = error_response(405, "this path answers " + allowed);
    response.fields.push_back({"Allow", allowed});
    return response;
}

}  // namespace kvasir::http
