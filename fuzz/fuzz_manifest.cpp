// Manifests from anybody: parse_manifest() takes any bytes, and what it accepts survives being written and read again.
#include <cstdlib>

#include "gguf/manifest.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace kvasir;
    Result<Manifest> manifest = parse_manifest({reinterpret_cast<const char*>(data), size});
    if (!manifest) return 0;
    Result<Manifest> again = parse_manifest(to_json(*manifest));
    if (!again || again->model_id() != manifest->model_id()) std::abort();
    return 0;
}
