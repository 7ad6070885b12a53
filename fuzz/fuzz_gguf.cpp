// The GGUF reader, the expert map and what `inspect` derives from them, on hostile headers.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "gguf/expert_map.h"
#include "gguf/gguf_file.h"
#include "gguf/piece.h"
#include "gguf/summary.h"

namespace {

using namespace kvasir;

void require(bool condition) {
    if (!condition) std::abort();
}

void check_places(const GgufModel& model, std::uint64_t size) {
    for (const TensorInfo& tensor : model.tensors()) {
        require(tensor.offset + tensor.bytes >= tensor.offset);
        require(tensor.bytes > 0);
        require(model.find(tensor.name) == &tensor);
        if (model.complete()) require(tensor.offset + tensor.bytes <= size);
        require(!type_name(tensor.type).empty());
    }
}

void check_layers(const ExpertMap& map) {
    for (const ExpertLayer& layer : map.layers) {
        require(layer.experts > 0);
        require(!describe(layer.recipe).empty());
        for (const ExpertTensor& tensor : layer.tensors) {
            require(tensor.slab_bytes * layer.experts == tensor.info.bytes);
            require(tensor.slab_offset(layer.experts) == tensor.info.offset + tensor.info.bytes);
        }
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const ByteSpan bytes = std::as_bytes(std::span(data, size));
    const Result<GgufModel> complete = GgufModel::parse(bytes, size, GgufLength::complete);
    const Result<GgufModel> model = GgufModel::parse(bytes, size, GgufLength::any);
    require(complete.has_value() == (model.has_value() && model->complete()));
    if (!model) return 0;
    check_places(*model, size);
    const Result<ExpertMap> map = map_experts(*model);
    if (!map) return 0;
    check_layers(*map);
    const Summary summary = summarize(*model, map->layers);
    const BudgetFit fit = fit_budget(summary, size);
    require(fit.experts_at_least <= fit.experts_at_most && fit.bytes_at_most <= size);
    return 0;
}
