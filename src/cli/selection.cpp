#include "cli/selection.h"

namespace kvasir::cli {
namespace {

Result<std::vector<Range>> layer_ranges(const ExpertMap& map, const std::string& text) {
    if (!text.empty()) return parse_ranges(text, "--layers");
    std::vector<Range> all;
    for (const ExpertLayer& layer : map.layers)
        all.push_back({layer.layer, layer.layer});
    return all;
}

Result<std::vector<Piece>> pieces_of(const ExpertMap& map, const Selection& selection) {
    Result<std::vector<Range>> layers = layer_ranges(map, selection.layers);
    if (!layers) return fail(layers.error());
    if (!selection.experts.empty()) {
        Result<std::vector<Range>> experts = parse_ranges(selection.experts, "--experts");
        if (!experts) return fail(experts.error());
        return select_pieces(map, *layers, *experts);
    }
    // All experts; their number may differ between layers.
    constexpr Range kFirst{0, 0};
    Result<std::vector<Piece>> pieces = select_pieces(map, *layers, std::span(&kFirst, 1));
    if (!pieces) return pieces;
    for (Piece& piece : *pieces)
        piece.count = map.find(piece.layer)->experts;
    return pieces;
}

}  // namespace

Result<Selection> parse_piece_option(const std::string& text) {
    const std::size_t colon = text.find(':');
    if (colon == std::string::npos || colon == 0 || colon + 1 == text.size()) {
        return fail(ErrorKind::usage, "--piece: '{}' is not LAYERS:EXPERTS, such as 0-3:0-63", text);
    }
    return Selection{text.substr(0, colon), text.substr(colon + 1)};
}

Result<std::vector<Piece>> pieces_of(const ExpertMap& map, const std::vector<Selection>& selections) {
    std::vector<Piece> pieces;
    for (const Selection& selection : selections) {
        Result<std::vector<Piece>> some = pieces_of(map, selection);
        if (!some) return some;
        pieces.insert(pieces.end(), some->begin(), some->end());
    }
    return normalized(std::move(pieces));
}

}  // namespace kvasir::cli
