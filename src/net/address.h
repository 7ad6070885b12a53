// "host:port", "[::1]:7411", ":7411" (all interfaces): where a node listens or connects to.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace kvasir {

inline constexpr std::uint16_t kDefaultWorkerPort = 7411;

struct Address {
    std::string host;  // empty: all interfaces (listening only)
    std::uint16_t port = 0;

    std::string text() const;  // an IPv6 literal in brackets
    bool operator==(const Address&) const = default;
};

// A missing port means `default_port`. Refuses bad ports, unclosed brackets, IPv6 without brackets.
Result<Address> parse_address(std::string_view text, std::uint16_t default_port);

}  // namespace kvasir
