// Requests and answers as a server's handlers see them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/files.h"

namespace kvasir::http {

struct Field {
    std::string name;
    std::string value;
};
using Fields = std::vector<Field>;

// The first field of that name (case does not matter); none is an empty optional.
std::optional<std::string_view> find_field(const Fields& fields, std::string_view name);

struct Request {
    std::string method;  // "GET"
    std::string path;    // begins with '/', still percent-encoded, without the query
    std::string query;   // what follows the '?', still encoded
    Fields fields;
    std::string body;
    std::string peer;     // "127.0.0.1:40512"
    std::string network;  // who that is for limits: the IPv4 address, the upper half of an IPv6 one
    bool secure = false;  // came over TLS

    std::optional<std::string_view> find(std::string_view name) const { return find_field(fields, name); }
};

// Bytes of an open file, sent by the kernel where there is no TLS.
struct FilePart {
    std::shared_ptr<const File> file;
    std::uint64_t offset = 0;
    std::uint64_t length = 0;
};

struct Response {
    unsigned status = 200;
    Fields fields;  // Content-Length, Connection, Date and Server are the server's own
    std::variant<std::string, std::shared_ptr<const std::string>, FilePart> body;

    std::uint64_t body_size() const;
};

// A short answer for programs: {"error": "…"} as JSON.
Response error_response(unsigned status, std::string_view message);
Response json_response(std::string text);

// "Not Found" for 404; empty for what has no name here.
std::string_view reason(unsigned status);

}  // namespace kvasir::http
