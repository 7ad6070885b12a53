// The catalogue over HTTP: GET /v1/models, /v1/models/{id}/manifest, /v1/models/{id}/files/{n} (with Range), /healthz.
#pragma once

#include "http/router.h"
#include "hub/catalogue.h"

namespace kvasir::hub {

// `catalogue` must outlive the router.
void add_catalogue_routes(http::Router& router, const Catalogue& catalogue);

}  // namespace kvasir::hub
