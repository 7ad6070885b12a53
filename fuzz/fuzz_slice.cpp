// Slices from anybody: a header whose kvasir.slice.* keys lie is refused, and the slabs of one that is accepted lie
// within the file.
#include <cstdlib>

#include "gguf/slice_contents.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace kvasir;
    ByteSpan bytes = std::as_bytes(std::span(data, size));
    Result<GgufModel> model = GgufModel::parse(bytes, size, GgufLength::complete);
    if (!model) return 0;
    Result<SliceContents> contents = decode_slice(*model);
    if (!contents) return 0;
    for (const SlabPlace& place : slab_places(*contents)) {
        const ExpertTensor& tensor = contents->pieces[place.piece].layer.tensors[place.tensor];
        if (tensor.slab_offset(place.expert) + tensor.slab_bytes > size) std::abort();
    }
    return 0;
}
