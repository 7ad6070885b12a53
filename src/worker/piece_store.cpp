#include "worker/piece_store.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "gguf/slice.h"

namespace kvasir {

Result<PieceStore> PieceStore::open(std::span<const std::filesystem::path> slices, std::uint64_t epoch) {
    if (slices.empty()) return fail(ErrorKind::usage, "no slices to serve");
    PieceStore store;
    store.epoch_ = epoch;
    for (const std::filesystem::path& path : slices) {
        if (Status added = store.add(path); !added) return fail(added.error());
    }
    for (auto& [layer, pieces] : store.layers_)
        std::ranges::sort(pieces, {}, [](const HeldPiece* held) { return held->piece; });
    for (const HeldPiece& held : store.held_)
        store.pieces_.push_back(held.piece);
    store.pieces_ = normalized(std::move(store.pieces_));
    return store;
}

Status PieceStore::add(const std::filesystem::path& path) {
    Result<Slice> slice = open_slice(path);
    if (!slice) return fail(slice.error());
    if (!slice->model_id) {
        return fail(ErrorKind::usage,
                    "{}: it carries no model id, so no backbone could trust it: publish the model "
                    "(kvasir publish MODEL) and cut the slice again",
                    path.string());
    }
    if (held_.empty()) model_id_ = *slice->model_id;
    if (model_id_ != *slice->model_id) {
        return fail(ErrorKind::usage, "{}: it is of model {}, the slices before it of {}: one worker serves one model",
                    path.string(), to_hex(*slice->model_id), to_hex(model_id_));
    }
    std::vector<ByteSpan> bytes;
    for (const ModelFile& file : slice->model.files()) {
        Result<MappedFile> mapped = MappedFile::open(file.path);
        if (!mapped) return fail(mapped.error());
        bytes.push_back(mapped->bytes());
        files_.push_back(std::move(*mapped));
    }
    for (const SliceLayer& part : slice->layers) {
        HeldPiece held{part.piece, view_weights(part.layer, bytes), part.layer.expert_bytes()};
        if (part.layer.recipe.activation != Activation::unknown) {
            Status usable = check_recipe(Arithmetic::ggml_cpu, part.layer.recipe, held.weights);
            if (!usable) spdlog::warn("{}: layer {}: {}", path.string(), part.piece.layer, usable.error().message);
        }
        weight_bytes_ += held.expert_bytes * part.piece.count;
        layers_[part.piece.layer].push_back(&held_.emplace_back(held));
    }
    return {};
}

std::optional<PieceStore::Place> PieceStore::find(std::uint32_t layer, std::uint32_t expert) const {
    auto found = layers_.find(layer);
    if (found == layers_.end()) return std::nullopt;
    for (const HeldPiece* held : found->second) {
        if (held->piece.contains(expert)) return Place{held, expert - held->piece.first};
    }
    return std::nullopt;
}

std::uint64_t PieceStore::expert_count() const {
    std::uint64_t count = 0;
    for (const Piece& piece : pieces_)
        count += piece.count;
    return count;
}

}  // namespace kvasir
