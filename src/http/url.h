// "http://host:port/path", "https://host/path?query".
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "net/address.h"

namespace kvasir::http {

struct Url {
    bool secure = false;
    Address address;           // the host is never empty, the port is the scheme's where none is given
    std::string target = "/";  // path and query, as they go into a request

    // "https://host:port", the port left out where it is the scheme's own.
    std::string origin() const;
    std::string text() const { return origin() + target; }
    // "host" or "host:port", for the Host field.
    std::string authority() const;
    // The same origin, another target ("/…").
    Url with_target(std::string_view other) const;
    bool same_origin(const Url& other) const { return secure == other.secure && address == other.address; }
};

// ErrorKind::usage for another scheme, names and passwords, fragments, control characters, blanks and what is longer
// than 4,096 bytes.
Result<Url> parse_url(std::string_view text);

// What a Location field means as seen from `base`: a whole URL, "//host/path", or a path. Its fragment is dropped.
Result<Url> resolve(const Url& base, std::string_view location);

// `segment`, percent-encoded, as the last part of a directory's URL: its target's query goes, a missing slash is added.
Url inside(const Url& directory, std::string_view segment);

}  // namespace kvasir::http
