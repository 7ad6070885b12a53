// Lists inside records as bytes, for a column of a database. Little-endian, a version byte first.
#pragma once

#include <span>
#include <vector>

#include "market/records.h"

namespace kvasir::market {

ByteVector bytes_of(std::span<const LeasedPiece> pieces);
ByteVector bytes_of(std::span<const OfferLayer> layers);
// ErrorKind::invalid for anything that these did not write.
Result<std::vector<LeasedPiece>> leased_pieces(ByteSpan bytes);
Result<std::vector<OfferLayer>> offer_layers(ByteSpan bytes);

}  // namespace kvasir::market
