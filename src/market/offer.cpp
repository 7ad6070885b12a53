#include "market/offer.h"

#include <algorithm>

namespace kvasir::market {

Result<Offer> Offer::create(const ModelId& model, std::string name, std::uint32_t target,
                            std::vector<OfferLayer> layers) {
    Offer offer;
    offer.model_ = model;
    offer.name_ = std::move(name);
    offer.target_ = target;
    if (target == 0 || target > 64) return fail(ErrorKind::invalid, "a target of {} replicas is not 1 to 64", target);
    if (layers.empty()) return fail(ErrorKind::unsupported, "'{}' has no routed experts to offer", offer.name_);
    std::uint64_t cells = 0;
    for (std::size_t i = 0; i < layers.size(); ++i) {
        const OfferLayer& layer = layers[i];
        if (layer.experts == 0 || layer.expert_bytes == 0 || layer.expert_bytes > std::uint64_t{1} << 40) {
            return fail(ErrorKind::invalid, "layer {} offers {} experts of {} bytes", layer.layer, layer.experts,
                        layer.expert_bytes);
        }
        if (i > 0 && layer.layer <= layers[i - 1].layer) {
            return fail(ErrorKind::invalid, "layer {} comes after layer {}", layer.layer, layers[i - 1].layer);
        }
        offer.first_.push_back(static_cast<CellIndex>(cells));
        cells += layer.experts;
        if (cells > kMaxCells) {
            return fail(ErrorKind::invalid, "more than {} experts are more than a model may offer", kMaxCells);
        }
        offer.bytes_ += layer.experts * layer.expert_bytes;
    }
    offer.first_.push_back(static_cast<CellIndex>(cells));
    offer.layers_ = std::move(layers);
    return offer;
}

Result<Offer> Offer::from_manifest(const Manifest& manifest, std::uint32_t target) {
    std::vector<OfferLayer> layers;
    for (const ManifestLayer& layer : manifest.layers) {
        std::uint64_t bytes = 0;
        for (const ManifestTensor& tensor : layer.tensors)
            bytes += tensor.slab_bytes;
        if (layer.experts > 0 && bytes > 0) layers.push_back({layer.layer, layer.experts, bytes});
    }
    return create(manifest.model_id(), manifest.name, target, std::move(layers));
}

std::size_t Offer::find(std::uint32_t layer) const {
    auto found = std::lower_bound(layers_.begin(), layers_.end(), layer,
                                  [](const OfferLayer& a, std::uint32_t number) { return a.layer < number; });
    if (found == layers_.end() || found->layer != layer) return layers_.size();
    return static_cast<std::size_t>(found - layers_.begin());
}

Result<Offer::Cells> Offer::cells_of(const Piece& piece) const {
    std::size_t index = find(piece.layer);
    if (index == layers_.size()) {
        return fail(ErrorKind::invalid, "layer {} of '{}' does not exist or has no routed experts", piece.layer, name_);
    }
    std::uint32_t experts = layers_[index].experts;
    if (piece.count == 0 || piece.first >= experts || piece.count > experts - piece.first) {
        return fail(ErrorKind::invalid, "layer {} of '{}' has experts 0-{}: {} from {} on are not among them",
                    piece.layer, name_, experts - 1, piece.count, piece.first);
    }
    CellIndex first = first_[index] + piece.first;
    return Cells{index, first, first + piece.count};
}

}  // namespace kvasir::market
