#include "market/receipt.h"

#include <algorithm>
#include <limits>
#include <string_view>

namespace kvasir::market {
namespace {

constexpr std::string_view kPurpose = "kvasir receipt/1";
constexpr std::size_t kLineBytes = 32 + 8 + 4 + 4 + 4 + 8;

Digest read_digest(ByteReader& reader) {
    Digest digest{};
    ByteSpan bytes = reader.take(digest.size());
    std::copy(bytes.begin(), bytes.end(), digest.begin());
    return digest;
}

ReceiptLine read_line(ByteReader& reader) {
    ReceiptLine line;
    line.worker = read_digest(reader);
    line.epoch = reader.read<std::uint64_t>();
    line.piece.layer = reader.read<std::uint32_t>();
    line.piece.first = reader.read<std::uint32_t>();
    line.piece.count = reader.read<std::uint32_t>();
    line.rows = reader.read<std::uint64_t>();
    return line;
}

}  // namespace

ByteVector encode(const Receipt& receipt) {
    ByteWriter writer;
    writer.append(std::as_bytes(std::span(kPurpose)));
    writer.append(receipt.backbone);
    writer.write(receipt.sequence);
    writer.append(receipt.model);
    writer.write(static_cast<std::uint32_t>(receipt.lines.size()));
    for (const ReceiptLine& line : receipt.lines) {
        writer.append(line.worker);
        writer.write(line.epoch);
        writer.write(line.piece.layer);
        writer.write(line.piece.first);
        writer.write(line.piece.count);
        writer.write(line.rows);
    }
    return std::move(writer.buffer());
}

Result<Receipt> decode_receipt(ByteSpan bytes) {
    ByteReader reader(bytes);
    ByteSpan purpose = reader.take(kPurpose.size());
    if (!std::equal(purpose.begin(), purpose.end(), std::as_bytes(std::span(kPurpose)).begin(),
                    std::as_bytes(std::span(kPurpose)).end())) {
        return fail(ErrorKind::invalid, "the receipt does not begin with '{}'", kPurpose);
    }
    Receipt receipt;
    receipt.backbone = read_digest(reader);
    receipt.sequence = reader.read<std::uint64_t>();
    receipt.model = read_digest(reader);
    const auto count = reader.read<std::uint32_t>();
    if (reader.failed()) return fail(ErrorKind::invalid, "the receipt ends after {} bytes", bytes.size());
    if (receipt.sequence == 0 || receipt.sequence > std::uint64_t{std::numeric_limits<std::int64_t>::max()}) {
        return fail(ErrorKind::invalid, "the receipt's sequence number {} is not 1 to 2^63 - 1", receipt.sequence);
    }
    if (count == 0 || count > kMaxReceiptLines) {
        return fail(ErrorKind::invalid, "the receipt has {} lines: 1 to {}", count, kMaxReceiptLines);
    }
    if (reader.remaining() != count * kLineBytes) {
        return fail(ErrorKind::invalid, "the receipt's {} lines take {} bytes, not {}", count, count * kLineBytes,
                    reader.remaining());
    }
    receipt.lines.reserve(count);
    for (std::uint32_t i = 0; i < count; ++i) {
        receipt.lines.push_back(read_line(reader));
        const ReceiptLine& line = receipt.lines.back();
        if (line.rows == 0 || line.rows > kMaxReceiptRows) {
            return fail(ErrorKind::invalid, "line {} of the receipt has {} rows: 1 to {}", i, line.rows,
                        kMaxReceiptRows);
        }
    }
    return receipt;
}

}  // namespace kvasir::market
