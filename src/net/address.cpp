#include "net/address.h"

#include <algorithm>
#include <boost/asio/ip/address_v6.hpp>
#include <charconv>
#include <optional>

namespace kvasir {
namespace {

constexpr std::size_t kHostLimit = 253;  // the longest DNS name

std::optional<std::uint16_t> parse_port(std::string_view text) {
    std::uint16_t port = 0;
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
    if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
    return port;
}

bool is_ipv6(std::string_view host) {
    boost::system::error_code error;
    boost::asio::ip::make_address_v6(std::string(host), error);
    return !error;
}

bool is_host_character(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '-' ||
           c == '_';
}

}  // namespace

std::string Address::text() const {
    bool bracketed = host.find(':') != std::string::npos;
    return bracketed ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

Result<Address> parse_address(std::string_view text, std::uint16_t default_port) {
    Address address{"", default_port};
    std::optional<std::string_view> port;
    if (text.empty()) return fail(ErrorKind::usage, "an address is empty; write HOST:PORT");
    if (text.front() == '[') {
        std::size_t end = text.find(']');
        if (end == std::string_view::npos) return fail(ErrorKind::usage, "'{}': its '[' is not closed", text);
        address.host = text.substr(1, end - 1);
        if (!is_ipv6(address.host)) {
            return fail(ErrorKind::usage, "'{}': '{}' is not an IPv6 address", text, address.host);
        }
        std::string_view rest = text.substr(end + 1);
        if (!rest.empty() && rest.front() != ':') {
            return fail(ErrorKind::usage, "'{}': ':PORT' is expected after ']'", text);
        }
        if (!rest.empty()) port = rest.substr(1);
    } else {
        std::size_t colon = text.find(':');
        if (colon != text.rfind(':')) {
            return fail(ErrorKind::usage, "'{}': an IPv6 address needs brackets: [ADDRESS]:PORT", text);
        }
        address.host = text.substr(0, colon);
        if (address.host.size() > kHostLimit ||
            !std::all_of(address.host.begin(), address.host.end(), is_host_character)) {
            return fail(ErrorKind::usage, "'{}': '{}' is not a host name or address", text, address.host);
        }
        if (colon != std::string_view::npos) port = text.substr(colon + 1);
    }
    if (!port) return address;
    std::optional<std::uint16_t> number = parse_port(*port);
    if (!number) return fail(ErrorKind::usage, "'{}': '{}' is not a port (0 to 65535)", text, *port);
    address.port = *number;
    return address;
}

}  // namespace kvasir
