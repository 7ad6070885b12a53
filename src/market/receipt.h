// A receipt: a backbone's signed statement of which expert-rows it accepted from which workers. Batched; each has a
// sequence number of its backbone's, by which a second settlement is known as a repetition.
//
// The signed bytes, little-endian: "kvasir receipt/1" (16 bytes), backbone id (32), sequence u64, model id (32),
// line count u32, then per line: worker id (32), epoch u64, layer u32, first expert u32, expert count u32, rows u64.
#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "market/records.h"

namespace kvasir::market {

struct ReceiptLine {
    NodeId worker{};
    std::uint64_t epoch = 0;
    Piece piece;             // within one leased piece of that epoch
    std::uint64_t rows = 0;  // (row, expert) pairs accepted
    bool operator==(const ReceiptLine&) const = default;
};

struct Receipt {
    NodeId backbone{};
    std::uint64_t sequence = 0;  // from 1; at most 2^63 - 1
    ModelId model{};
    std::vector<ReceiptLine> lines;
    bool operator==(const Receipt&) const = default;
};

inline constexpr std::uint32_t kMaxReceiptLines = 65'536;
inline constexpr std::uint64_t kMaxReceiptRows = std::uint64_t{1} << 40;  // of a line

ByteVector encode(const Receipt& receipt);
// Every count and number is checked; ErrorKind::invalid says what was wrong.
Result<Receipt> decode_receipt(ByteSpan bytes);

}  // namespace kvasir::market
