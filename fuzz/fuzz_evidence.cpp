// Evidence from anybody: evidence_from_json() takes any bytes, and what it accepts survives being written and read
// again. Whether it was signed may be asked of all of it.
#include <cstdlib>

#include "backbone/evidence.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace kvasir;
    const Result<Evidence> evidence = evidence_from_json({reinterpret_cast<const char*>(data), size});
    if (!evidence) return 0;
    const Result<Evidence> again = evidence_from_json(to_json(*evidence));
    if (!again || to_json(*again) != to_json(*evidence)) std::abort();
    const Result<NodeId> signer = signer_of(*evidence);
    const Result<NodeId> same = signer_of(*again);
    if (signer.has_value() != same.has_value()) std::abort();
    if (signer && *signer != *same) std::abort();
    return 0;
}
