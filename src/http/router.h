// Who answers what: patterns such as "/v1/models/{id}/files/{n}", each with a method and a handler.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "http/message.h"

namespace kvasir::http {

// What stood for the {names} of a pattern, in order, percent-decoded; never empty.
using PathParameters = std::vector<std::string>;
using RouteHandler = std::function<Response(const Request&, const PathParameters&)>;

// Filled before it serves; thread-safe from then on, if its handlers are.
class Router {
  public:
    // The first pattern added that fits answers. GET handlers answer HEAD, too.
    void add(std::string method, std::string_view pattern, RouteHandler handler);

    // 404 for an unknown path, 405 (with Allow) for another method, 400 for broken percent-encoding.
    Response answer(const Request& request) const;

  private:
    struct Route {
        std::string method;
        std::vector<std::string> segments;
        RouteHandler handler;
    };
    std::vector<Route> routes_;
};

}  // namespace kvasir::http
