#include "http/message.h"

#include <algorithm>
#include <boost/beast/http/status.hpp>
#include <nlohmann/json.hpp>

#include "http/text.h"

namespace kvasir::http {

std::optional<std::string_view> find_field(const Fields& fields, std::string_view name) {
    const auto found =
        std::ranges::find_if(fields, [name](const Field& field) { return equal_ignoring_case(field.name, name); });
    if (found == fields.end()) return std::nullopt;
    return found->value;
}

std::uint64_t Response::body_size() const {
    if (const auto* text = std::get_if<std::string>(&body)) return text->size();
    if (const auto* part = std::get_if<FilePart>(&body)) return part->length;
    return std::get<std::shared_ptr<const std::string>>(body)->size();
}

Response error_response(unsigned status, std::string_view message) {
    const nlohmann::json json = {{"error", message}};
    Response response = json_response(json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
    response.status = status;
    return response;
}

Response json_response(std::string text) {
    return {200, {{"Content-Type", "application/json"}, {"Cache-Control", "no-cache"}}, std::move(text)};
}

std::string_view reason(unsigned status) {
    const auto name = boost::beast::http::obsolete_reason(boost::beast::http::int_to_status(status));
    return {name.data(), name.size()};
}

}  // namespace kvasir::http
