#include "fetch/hub_client.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "http/text.h"

namespace kvasir::fetch {
namespace {

using Json = nlohmann::json;

constexpr int kMaxDepth = 8;
constexpr std::uint64_t kMaxValues = 1'000'000;
constexpr std::size_t kMaxText = 1024;
constexpr std::size_t kShortestBeginning = 6;  // of an id, in hex digits

// Thrown and caught within this file, next to what the JSON library throws.
std::string text_of(const Json& object, const char* key) {
    const Json& value = object.at(key);
    auto text = value.get<std::string>();
    if (text.size() > kMaxText) throw std::invalid_argument(fmt::format("'{}' is too long", key));
    return text;
}

CatalogueEntry entry_of(const Json& json) {
    Result<Digest> id = digest_from_hex(text_of(json, "id"));
    if (!id) throw std::invalid_argument(id.error().message);
    CatalogueEntry entry{*id, text_of(json, "name"), text_of(json, "architecture"), {}};
    for (const Json& file : json.at("files"))
        entry.files.push_back(text_of(file, "name"));
    return entry;
}

Json parse_bounded(std::string_view text) {
    std::uint64_t values = 0;
    const auto check = [&values](int depth, Json::parse_event_t /*event*/, Json& /*value*/) {
        if (depth > kMaxDepth || ++values > kMaxValues) throw std::invalid_argument("too deep or too long");
        return true;
    };
    return Json::parse(text, check);
}

bool is_called(const CatalogueEntry& entry, std::string_view named) {
    const bool begins = named.size() >= kShortestBeginning && to_hex(entry.id).starts_with(named);
    return begins || entry.name == named || std::ranges::find(entry.files, named) != entry.files.end();
}

std::string list(const std::vector<CatalogueEntry>& models) {
    constexpr std::size_t kShown = 10;
    std::string text;
    for (std::size_t i = 0; i < std::min(models.size(), kShown); ++i) {
        text += fmt::format("{}{} ({})", i == 0 ? "" : ", ", http::printable(models[i].name, 80),
                            to_hex(models[i].id).substr(0, 12));
    }
    if (models.size() > kShown) text += fmt::format(" and {} more", models.size() - kShown);
    return text.empty() ? "nothing" : text;
}

}  // namespace

Result<std::vector<CatalogueEntry>> parse_catalogue(std::string_view json) {
    if (json.size() > kMaxCatalogueBytes) return fail(ErrorKind::invalid, "a catalogue of {} bytes", json.size());
    try {
        std::vector<CatalogueEntry> entries;
        const Json catalogue = parse_bounded(json);
        for (const Json& model : catalogue.at("models")) {
            if (entries.size() == kMaxCatalogueModels) throw std::invalid_argument("too many models");
            entries.push_back(entry_of(model));
        }
        return entries;
    } catch (const std::exception& error) {
        return fail(ErrorKind::invalid, "not a hub's catalogue: {}", http::printable(error.what(), 200));
    }
}

Result<HubAddress> parse_hub(std::string_view text) {
    HubAddress hub;
    const std::size_t mark = std::min(text.find('#'), text.size());
    Result<http::Url> url = http::parse_url(text.substr(0, mark));
    if (!url) return fail(url.error());
    hub.url = std::move(*url);
    if (hub.url.target != "/") {
        return fail(ErrorKind::usage, "{}: a hub's address has no path; write {}", hub.url.text(), hub.url.origin());
    }
    if (mark == text.size()) return hub;
    Result<Digest> pin = digest_from_hex(text.substr(mark + 1));
    if (!pin) return fail(ErrorKind::usage, "{}: what follows the '#' is not a pin of 64 hex digits", hub.url.origin());
    if (!hub.url.secure) return fail(ErrorKind::usage, "{}: only https has a key to pin", hub.url.origin());
    hub.trust.pin = *pin;
    return hub;
}

HubClient::HubClient(HubAddress hub, http::ClientOptions options)
    : hub_(std::move(hub)), client_([&] {
          options.trust = hub_.trust;
          return std::move(options);
      }()) {}

Result<HubClient::Got> HubClient::get(const std::string& target, std::uint64_t limit) {
    const http::Call call{"GET", hub_.url.with_target(target), {{"Accept", "application/json"}}, {}};
    Result<http::Answer> answer = client_.call(call);
    if (!answer) return fail(answer.error());
    Result<std::string> body = client_.read_all(limit);
    if (!body) return fail(body.error());
    if (answer->status == 200) return Got{std::move(*answer), std::move(*body)};
    const ErrorKind kind = answer->status >= 500 ? ErrorKind::unavailable : ErrorKind::invalid;
    return fail(kind, "{}: answered {} {}: {}", call.url.text(), answer->status, http::reason(answer->status),
                http::printable(*body, 200));
}

Result<std::vector<CatalogueEntry>> HubClient::models() {
    Result<Got> got = get("/v1/models", kMaxCatalogueBytes);
    if (!got) return fail(got.error());
    Result<std::vector<CatalogueEntry>> entries = parse_catalogue(got->body);
    if (!entries) return fail(entries.error().within(hub_.url.origin()));
    return entries;
}

Result<Digest> HubClient::find(std::string_view named) {
    if (Result<Digest> id = digest_from_hex(named)) return id;
    Result<std::vector<CatalogueEntry>> all = models();
    if (!all) return fail(all.error());
    std::vector<CatalogueEntry> found;
    std::ranges::copy_if(*all, std::back_inserter(found),
                         [named](const CatalogueEntry& entry) { return is_called(entry, named); });
    if (found.size() == 1) return found.front().id;
    return fail(ErrorKind::usage, "{}: {} models are called '{}'; there are: {}", hub_.url.origin(), found.size(),
                http::printable(named, 100), list(found.empty() ? *all : found));
}

Result<Manifest> HubClient::manifest(const Digest& id) {
    Result<Got> got = get(fmt::format("/v1/models/{}/manifest", to_hex(id)), kMaxManifestBytes);
    if (!got) return fail(got.error());
    Result<Manifest> manifest = parse_manifest(got->body);
    if (!manifest) return fail(manifest.error().within(hub_.url.origin()));
    if (manifest->model_id() == id) {
        if (got->answer.find("Kvasir-Files") == "none") without_files_.push_back(id);
        return manifest;
    }
    return fail(ErrorKind::invalid, "{}: sent the manifest of model {} where {} was asked for", hub_.url.origin(),
                to_hex(manifest->model_id()), to_hex(id));
}

std::optional<Source> HubClient::source(const Digest& id) const {
    if (std::ranges::find(without_files_, id) != without_files_.end()) return std::nullopt;
    return Source{hub_.url, id, hub_.trust};
}

}  // namespace kvasir::fetch
