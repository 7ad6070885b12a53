// What a hub says about its models, read without trusting it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fetch/source.h"
#include "http/client.h"

namespace kvasir::fetch {

struct CatalogueEntry {
    Digest id{};
    std::string name;
    std::string architecture;
    std::vector<std::string> files;  // their names
};

inline constexpr std::uint64_t kMaxCatalogueBytes = 4 << 20;
inline constexpr std::size_t kMaxCatalogueModels = 10'000;

// Takes any bytes; ErrorKind::invalid for what is no catalogue.
Result<std::vector<CatalogueEntry>> parse_catalogue(std::string_view json);

// "https://host:port#PIN": where a hub is, and (optionally) the SHA-256 of its TLS key, 64 hex digits.
struct HubAddress {
    http::Url url;
    http::Trust trust;
};
Result<HubAddress> parse_hub(std::string_view text);

// A hub that `client` can talk to. Errors as the client's; ErrorKind::invalid where the hub answers nonsense.
class HubClient {
  public:
    HubClient(HubAddress hub, http::ClientOptions options);

    Result<std::vector<CatalogueEntry>> models();
    // The id itself if `named` is 64 hex digits; else the one model of the catalogue whose name, file name or beginning
    // of its id this is. ErrorKind::usage, listing what there is, for none and for several.
    Result<Digest> find(std::string_view named);
    // Its contents make the id `id`, whatever the hub says.
    Result<Manifest> manifest(const Digest& id);
    // Where the hub has that model's files; none if it said, with the manifest, that it has none.
    std::optional<Source> source(const Digest& id) const;

  private:
    struct Got {
        http::Answer answer;
        std::string body;
    };
    Result<Got> get(const std::string& target, std::uint64_t limit);

    HubAddress hub_;
    http::Client client_;
    std::vector<Digest> without_files_;
};

}  // namespace kvasir::fetch
