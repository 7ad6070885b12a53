#include "hub/range_files.h"

#include <sys/stat.h>

#include <charconv>
#include <nlohmann/json.hpp>

namespace kvasir::hub {
namespace {

using http::error_response;
using http::Request;
using http::Response;

const PublishedModel* find_model(const Catalogue& catalogue, const std::string& hex) {
    const Result<Digest> id = digest_from_hex(hex);
    return id ? catalogue.find(*id) : nullptr;
}

Response no_such_model() {
    return error_response(404, "no model of that id is published here: GET /v1/models lists them");
}

bool unchanged(const PublishedFile& file) {
    struct stat status {};
    if (::fstat(file.content.file->descriptor(), &status) != 0) return false;
    const std::int64_t changed = std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
    return changed == file.changed_ns && static_cast<std::uint64_t>(status.st_size) == file.content.size;
}

Response answer_file(const Catalogue& catalogue, const Request& request, const http::PathParameters& path) {
    const PublishedModel* model = find_model(catalogue, path[0]);
    if (model == nullptr) return no_such_model();
    if (model->files.empty()) {
        return error_response(404, "this hub does not have the model's files, only its manifest, which names mirrors");
    }
    std::size_t number = 0;
    const auto [end, error] = std::from_chars(path[1].data(), path[1].data() + path[1].size(), number);
    const bool whole = error == std::errc{} && end == path[1].data() + path[1].size();
    if (!whole || number >= model->files.size()) {
        return error_response(404, fmt::format("the model has files 0 to {}", model->files.size() - 1));
    }
    const PublishedFile& file = model->files[number];
    // Old bytes and new ones must not be mixed under one tag.
    if (!unchanged(file)) return error_response(503, "the file has changed since it was published");
    return http::file_response(request, file.content);
}

Response answer_health(const Catalogue& catalogue) {
    const nlohmann::json json = {{"status", "ok"}, {"models", catalogue.models().size()}};
    return http::json_response(json.dump() + "\n");
}

}  // namespace

void add_catalogue_routes(http::Router& router, const Catalogue& catalogue) {
    router.add("GET", "/healthz", [&](const Request&, const auto&) { return answer_health(catalogue); });
    router.add("GET", "/v1/models",
               [&](const Request&, const auto&) { return http::json_response(catalogue.to_json()); });
    router.add("GET", "/v1/models/{id}/manifest", [&](const Request& request, const http::PathParameters& path) {
        const PublishedModel* model = find_model(catalogue, path[0]);
        if (model == nullptr) return no_such_model();
        Response response = http::text_response(request, model->json, model->etag, "application/json");
        if (model->files.empty()) response.fields.push_back({"Kvasir-Files", "none"});
        return response;
    });
    router.add("GET", "/v1/models/{id}/files/{n}", [&](const Request& request, const http::PathParameters& path) {
        return answer_file(catalogue, request, path);
    });
}

}  // namespace kvasir::hub
