#include "gguf/summary.h"

#include <algorithm>
#include <map>
#include <utility>

namespace kvasir {
namespace {

// Everything but the layer's number and the tensors' names and places.
bool alike(const ExpertLayer& a, const ExpertLayer& b) {
    const auto same_tensor = [](const ExpertTensor& x, const ExpertTensor& y) {
        return x.role == y.role && x.info.type == y.info.type && x.slab_bytes == y.slab_bytes;
    };
    return a.experts == b.experts && a.hidden == b.hidden && a.ff == b.ff && a.recipe == b.recipe &&
           std::equal(a.tensors.begin(), a.tensors.end(), b.tensors.begin(), b.tensors.end(), same_tensor);
}

void add_layer(std::vector<Range>& ranges, std::uint32_t layer) {
    if (!ranges.empty() && layer >= ranges.back().first && layer <= ranges.back().last + 1) {
        ranges.back().last = std::max(ranges.back().last, layer);
    } else {
        ranges.push_back({layer, layer});
    }
}

std::vector<LayerGroup> group(std::span<const ExpertLayer> layers) {
    std::vector<LayerGroup> groups;
    for (const ExpertLayer& layer : layers) {
        auto found = std::find_if(groups.begin(), groups.end(),
                                  [&](const LayerGroup& entry) { return alike(entry.example, layer); });
        if (found == groups.end()) {
            groups.push_back({.layers = {}, .layer_count = 0, .example = layer});
            found = groups.end() - 1;
        }
        add_layer(found->layers, layer.layer);
        ++found->layer_count;
    }
    return groups;
}

// "blk.12.attn_q.weight" → "attn_q.weight"; slices number further pieces: "….weight.1" → "….weight".
std::string tensor_kind(const std::string& name) {
    if (const auto expert = parse_expert_tensor_name(name)) {
        return expert_tensor_name(0, expert->role).substr(std::string("blk.0.").size());
    }
    if (!name.starts_with("blk.")) return name;
    const std::size_t digits_end = name.find_first_not_of("0123456789", 4);
    if (digits_end == 4 || digits_end == std::string::npos || name[digits_end] != '.') return name;
    return name.substr(digits_end + 1);
}

std::vector<TypeCount> count_types(const GgufModel& model) {
    std::map<std::pair<std::string, std::uint32_t>, TypeCount> counts;
    for (const TensorInfo& tensor : model.tensors()) {
        std::string kind = tensor_kind(tensor.name);
        TypeCount& count = counts[{kind, tensor.type}];
        count.tensor = std::move(kind);
        count.type = tensor.type;
        count.routed = parse_expert_tensor_name(tensor.name).has_value();
        ++count.tensors;
        count.bytes += tensor.bytes;
    }
    std::vector<TypeCount> sorted;
    sorted.reserve(counts.size());
    for (auto& [key, count] : counts)
        sorted.push_back(std::move(count));
    std::stable_sort(sorted.begin(), sorted.end(),
                     [](const TypeCount& a, const TypeCount& b) { return a.bytes > b.bytes; });
    return sorted;
}

struct Filled {
    std::uint64_t experts = 0;
    std::uint64_t bytes = 0;
};

// How many experts fit when sizes are taken in the order given.
template <class Sizes>
Filled fill(const Sizes& sizes, std::uint64_t budget) {
    Filled filled;
    for (const SlabSize& size : sizes) {
        const std::uint64_t taken =
            std::min(size.experts, (budget - filled.bytes) / std::max<std::uint64_t>(size.bytes, 1));
        filled.experts += taken;
        filled.bytes += taken * size.bytes;
        if (taken < size.experts) break;
    }
    return filled;
}

}  // namespace

Summary summarize(const GgufModel& model, std::span<const ExpertLayer> layers) {
    Summary summary;
    summary.groups = group(layers);
    std::map<std::uint64_t, std::uint64_t> sizes;
    for (const ExpertLayer& layer : layers)
        sizes[layer.expert_bytes()] += layer.experts;
    for (const auto& [bytes, experts] : sizes)
        summary.expert_sizes.push_back({bytes, experts});
    summary.types = count_types(model);
    return summary;
}

BudgetFit fit_budget(const Summary& summary, std::uint64_t bytes) {
    BudgetFit fit;
    const std::vector<SlabSize>& ascending = summary.expert_sizes;
    const std::vector<SlabSize> descending(ascending.rbegin(), ascending.rend());
    const Filled small = fill(ascending, bytes);
    const Filled large = fill(descending, bytes);
    fit.experts_at_most = small.experts;
    fit.experts_at_least = large.experts;
    fit.bytes_at_most = std::max(small.bytes, large.bytes);
    std::uint64_t total = 0;
    for (const SlabSize& size : ascending)
        total += size.experts;
    if (large.experts > 0) fit.workers = (total + large.experts - 1) / large.experts;
    return fit;
}

}  // namespace kvasir
