#include "market/record_bytes.h"

namespace kvasir::market {
namespace {

constexpr std::uint8_t kVersion = 1;

// Reads items of `item_bytes` until the end.
template <class Item, class Read>
Result<std::vector<Item>> read_all(ByteSpan bytes, std::size_t item_bytes, std::string_view what, Read read) {
    ByteReader reader(bytes);
    const auto version = reader.read<std::uint8_t>();
    if (reader.failed() || version != kVersion || reader.remaining() % item_bytes != 0) {
        return fail(ErrorKind::invalid, "a stored list of {} is damaged ({} bytes, version {})", what, bytes.size(),
                    version);
    }
    std::vector<Item> items;
    items.reserve(reader.remaining() / item_bytes);
    while (reader.remaining() > 0)
        items.push_back(read(reader));
    return items;
}

Instant read_instant(ByteReader& reader) {
    return Instant(Duration(reader.read<std::int64_t>()));
}

}  // namespace

ByteVector bytes_of(std::span<const LeasedPiece> pieces) {
    ByteWriter writer;
    writer.write(kVersion);
    for (const LeasedPiece& leased : pieces) {
        writer.write(leased.piece.layer);
        writer.write(leased.piece.first);
        writer.write(leased.piece.count);
        writer.write(leased.rate);
        writer.write<std::int64_t>(leased.since.time_since_epoch().count());
        writer.write<std::int64_t>(leased.proved.time_since_epoch().count());
    }
    return std::move(writer.buffer());
}

Result<std::vector<LeasedPiece>> leased_pieces(ByteSpan bytes) {
    return read_all<LeasedPiece>(bytes, 36, "leased pieces", [](ByteReader& reader) {
        LeasedPiece leased;
        leased.piece.layer = reader.read<std::uint32_t>();
        leased.piece.first = reader.read<std::uint32_t>();
        leased.piece.count = reader.read<std::uint32_t>();
        leased.rate = reader.read<std::uint64_t>();
        leased.since = read_instant(reader);
        leased.proved = read_instant(reader);
        return leased;
    });
}

ByteVector bytes_of(std::span<const OfferLayer> layers) {
    ByteWriter writer;
    writer.write(kVersion);
    for (const OfferLayer& layer : layers) {
        writer.write(layer.layer);
        writer.write(layer.experts);
        writer.write(layer.expert_bytes);
    }
    return std::move(writer.buffer());
}

Result<std::vector<OfferLayer>> offer_layers(ByteSpan bytes) {
    return read_all<OfferLayer>(bytes, 16, "layers", [](ByteReader& reader) {
        OfferLayer layer;
        layer.layer = reader.read<std::uint32_t>();
        layer.experts = reader.read<std::uint32_t>();
        layer.expert_bytes = reader.read<std::uint64_t>();
        return layer;
    });
}

}  // namespace kvasir::market
