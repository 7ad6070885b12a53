#include "http/url.h"

#include <algorithm>

#include "http/text.h"

namespace kvasir::http {
namespace {

constexpr std::size_t kLongest = 4096;
constexpr std::uint16_t kPort = 80;
constexpr std::uint16_t kSecurePort = 443;

bool begins_with(std::string_view text, std::string_view scheme) {
    return text.size() >= scheme.size() && equal_ignoring_case(text.substr(0, scheme.size()), scheme);
}

// "mailto:x": a colon before the first slash is a scheme's end.
bool has_scheme(std::string_view text) {
    const std::size_t end = text.find_first_of(":/?");
    return end != std::string_view::npos && text[end] == ':';
}

// The directory of a path: up to and with its last slash.
std::string directory_of(std::string_view target) {
    const std::string_view path = target.substr(0, target.find('?'));
    return std::string(path.substr(0, path.rfind('/') + 1));
}

}  // namespace

std::string Url::authority() const {
    if (address.port != (secure ? kSecurePort : kPort)) return address.text();
    const bool bracketed = address.host.find(':') != std::string::npos;
    return bracketed ? "[" + address.host + "]" : address.host;
}

std::string Url::origin() const {
    return fmt::format("{}://{}", secure ? "https" : "http", authority());
}

Url Url::with_target(std::string_view other) const {
    return {secure, address, std::string(other)};
}

Result<Url> parse_url(std::string_view text) {
    if (text.size() > kLongest) {
        return fail(ErrorKind::usage, "a URL of {} bytes is longer than {}", text.size(), kLongest);
    }
    const std::string shown = printable(text, 200);
    if (!std::ranges::all_of(text, [](char c) { return c > ' ' && c <= '~'; })) {
        return fail(ErrorKind::usage, "'{}': a URL has neither blanks nor other than ASCII characters", shown);
    }
    Url url;
    if (begins_with(text, "https://")) {
        url.secure = true;
    } else if (!begins_with(text, "http://")) {
        return fail(ErrorKind::usage, "'{}' is no URL: http://HOST:PORT/… or https://HOST:PORT/…", shown);
    }
    text.remove_prefix(url.secure ? 8 : 7);
    if (text.find('#') != std::string_view::npos) {
        return fail(ErrorKind::usage, "'{}': nothing may follow a '#' here", shown);
    }
    const std::size_t end = std::min(text.find_first_of("/?"), text.size());
    const std::string_view authority = text.substr(0, end);
    if (authority.find('@') != std::string_view::npos) {
        return fail(ErrorKind::usage, "a URL with a user's name or password in it is not taken");
    }
    Result<Address> address = parse_address(authority, url.secure ? kSecurePort : kPort);
    if (!address) return fail(address.error().within(shown));
    if (address->host.empty() || address->port == 0) {
        return fail(ErrorKind::usage, "'{}': a host (and no port 0) is needed", shown);
    }
    url.address = std::move(*address);
    url.target = text.substr(end);
    if (url.target.empty() || url.target.front() != '/') url.target.insert(0, "/");
    return url;
}

Result<Url> resolve(const Url& base, std::string_view location) {
    location = trimmed(location.substr(0, location.find('#')));
    if (has_scheme(location)) return parse_url(location);
    if (location.starts_with("//")) return parse_url((base.secure ? "https:" : "http:") + std::string(location));
    const std::string target =
        location.starts_with("/") ? std::string(location) : directory_of(base.target) + std::string(location);
    return parse_url(base.origin() + target);
}

Url inside(const Url& directory, std::string_view segment) {
    std::string target = directory.target.substr(0, directory.target.find('?'));
    if (!target.ends_with('/')) target += '/';
    return directory.with_target(target + percent_encoded(segment));
}

}  // namespace kvasir::http
