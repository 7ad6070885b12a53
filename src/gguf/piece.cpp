#include "gguf/piece.h"

#include <algorithm>
#include <charconv>
#include <optional>

namespace kvasir {
namespace {

constexpr std::uint32_t kMaxNumber = 1'000'000;

std::optional<std::uint32_t> parse_number(std::string_view text) {
    std::uint32_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc{} || end != text.data() + text.size() || number > kMaxNumber) return std::nullopt;
    return number;
}

Result<Range> parse_range(std::string_view item, std::string_view text, std::string_view what) {
    const std::size_t dash = item.find('-');
    const std::string_view first_text = item.substr(0, dash);
    const std::string_view last_text = dash == std::string_view::npos ? first_text : item.substr(dash + 1);
    const std::optional<std::uint32_t> first = parse_number(first_text);
    const std::optional<std::uint32_t> last = parse_number(last_text);
    if (!first || !last) {
        return fail(ErrorKind::usage, "{}: '{}' in '{}' is neither a number nor a range such as 0-3 (up to {})", what,
                    item, text, kMaxNumber);
    }
    if (*last < *first)
        return fail(ErrorKind::usage, "{}: '{}' runs backwards; write {}-{}", what, item, *last, *first);
    return Range{*first, *last};
}

std::vector<Range> merged(std::vector<Range> ranges) {
    std::sort(ranges.begin(), ranges.end());
    std::vector<Range> out;
    for (const Range& range : ranges) {
        if (!out.empty() && range.first <= out.back().last + 1) {
            out.back().last = std::max(out.back().last, range.last);
        } else {
            out.push_back(range);
        }
    }
    return out;
}

// "layers 0-47"
std::string show_layers(const ExpertMap& map) {
    std::vector<Range> layers;
    for (const ExpertLayer& layer : map.layers)
        layers.push_back({layer.layer, layer.layer});
    return describe(merged(std::move(layers)));
}

}  // namespace

Result<std::vector<Range>> parse_ranges(std::string_view text, std::string_view what) {
    if (text.empty()) return fail(ErrorKind::usage, "{}: nothing given; write for example 0-3,7", what);
    std::vector<Range> ranges;
    std::string_view rest = text;
    while (true) {
        const std::size_t comma = rest.find(',');
        Result<Range> range = parse_range(rest.substr(0, comma), text, what);
        if (!range) return fail(range.error());
        ranges.push_back(*range);
        if (comma == std::string_view::npos) return merged(std::move(ranges));
        rest.remove_prefix(comma + 1);
    }
}

Result<std::vector<Piece>> select_pieces(const ExpertMap& map, std::span<const Range> layers,
                                         std::span<const Range> experts) {
    if (map.layers.empty()) return fail(ErrorKind::usage, "the model has no routed experts: there is nothing to cut");
    std::vector<Piece> pieces;
    for (const Range& chosen : layers) {
        for (std::uint32_t number = chosen.first; number <= chosen.last; ++number) {
            const ExpertLayer* layer = map.find(number);
            if (layer == nullptr) {
                return fail(ErrorKind::usage, "layer {} does not exist or has no routed experts; layers with some: {}",
                            number, show_layers(map));
            }
            for (const Range& range : experts) {
                if (range.last < layer->first_expert || range.last - layer->first_expert >= layer->experts ||
                    range.first < layer->first_expert) {
                    return fail(ErrorKind::usage, "layer {} has no experts {}-{}: its experts are {}-{}", number,
                                range.first, range.last, layer->first_expert, layer->first_expert + layer->experts - 1);
                }
                pieces.push_back({.layer = number, .first = range.first, .count = range.last - range.first + 1});
            }
        }
    }
    return normalized(std::move(pieces));
}

std::vector<Piece> normalized(std::vector<Piece> pieces) {
    std::sort(pieces.begin(), pieces.end());
    std::vector<Piece> out;
    for (const Piece& piece : pieces) {
        if (piece.count == 0) continue;
        const std::uint64_t end = std::uint64_t{piece.first} + piece.count;
        if (!out.empty() && out.back().layer == piece.layer &&
            piece.first <= std::uint64_t{out.back().first} + out.back().count) {
            const std::uint64_t merged_end = std::max(std::uint64_t{out.back().first} + out.back().count, end);
            out.back().count = static_cast<std::uint32_t>(merged_end - out.back().first);
        } else {
            out.push_back(piece);
        }
    }
    return out;
}

std::string describe(std::span<const Range> ranges) {
    std::string text;
    for (const Range& range : ranges) {
        if (!text.empty()) text += ',';
        text +=
            range.first == range.last ? fmt::format("{}", range.first) : fmt::format("{}-{}", range.first, range.last);
    }
    return text;
}

std::string describe(std::span<const Piece> pieces) {
    // Layers in order, each with its expert ranges; then neighbours with the same ranges share one entry.
    struct Entry {
        Range layers;
        std::string experts;
    };
    const std::vector<Piece> sorted = normalized({pieces.begin(), pieces.end()});
    std::vector<Entry> entries;
    for (std::size_t i = 0; i < sorted.size();) {
        const std::uint32_t layer = sorted[i].layer;
        std::vector<Range> experts;
        for (; i < sorted.size() && sorted[i].layer == layer; ++i) {
            experts.push_back({sorted[i].first, sorted[i].first + sorted[i].count - 1});
        }
        std::string shown = describe(experts);
        if (!entries.empty() && entries.back().layers.last + 1 == layer && entries.back().experts == shown) {
            entries.back().layers.last = layer;
        } else {
            entries.push_back({{layer, layer}, std::move(shown)});
        }
    }
    std::string text;
    for (const Entry& entry : entries) {
        if (!text.empty()) text += "; ";
        const bool one = entry.layers.first == entry.layers.last;
        text +=
            fmt::format("layer{} {}: experts {}", one ? "" : "s", describe(std::span(&entry.layers, 1)), entry.experts);
    }
    return text.empty() ? "nothing" : text;
}

}  // namespace kvasir
