// Catalogues from anybody: parse_catalogue() takes any bytes and keeps to its bounds.
#include <cstdint>
#include <cstdlib>

#include "fetch/hub_client.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace kvasir::fetch;
    const auto entries = parse_catalogue({reinterpret_cast<const char*>(data), size});
    if (entries && entries->size() > kMaxCatalogueModels) std::abort();
    return 0;
}
