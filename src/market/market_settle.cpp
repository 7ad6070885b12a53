// The market's half that measures demand and pays for work.
#include <algorithm>

#include "market/market.h"

namespace kvasir::market {
namespace {

constexpr std::uint64_t kMaxReportedRows = std::uint64_t{1} << 40;

bool within(const Piece& piece, const Piece& range) {
    return piece.layer == range.layer && piece.first >= range.first && piece.count <= range.count &&
           piece.first - range.first <= range.count - piece.count;
}

const LeasedPiece* find_piece(const LeaseRecord& lease, const Piece& piece) {
    auto found =
        std::ranges::find_if(lease.pieces, [&](const LeasedPiece& leased) { return within(piece, leased.piece); });
    return found == lease.pieces.end() ? nullptr : &*found;
}

}  // namespace

Status Market::report_load(const Caller& caller, const LoadReport& report) {
    std::lock_guard lock(mutex_);
    if (!caller.may(kBackbone)) return fail(ErrorKind::usage, "only backbones report demand");
    Demand* demand = find(report.model);
    if (demand == nullptr) return fail(ErrorKind::usage, "the model {} is not on the market", to_hex(report.model));
    for (const LoadReport::Part& part : report.parts) {
        if (part.rows > kMaxReportedRows || part.misses > part.rows) {
            return fail(ErrorKind::invalid, "{} rows with {} misses are no demand", part.rows, part.misses);
        }
        Result<Offer::Cells> cells = demand->offer().cells_of({report.layer, part.first, part.count});
        if (!cells) return fail(cells.error());
    }
    for (const LoadReport::Part& part : report.parts) {
        const Offer::Cells cells = demand->offer().cells_of({report.layer, part.first, part.count}).value();
        const double rows = static_cast<double>(part.rows) / part.count;
        const double misses = static_cast<double>(part.misses) / part.count;
        for (CellIndex cell = cells.first; cell < cells.end; ++cell)
            demand->report(cell, rows, misses);
    }
    return {};
}

Result<Settlement> Market::settle(ByteSpan bytes, const Signature& signature) {
    Result<Receipt> receipt = decode_receipt(bytes);
    if (!receipt) return fail(receipt.error());
    const std::optional<NodeRecord> backbone = registry_.find(receipt->backbone);
    if (!backbone || backbone->revoked || (backbone->roles & kBackbone) == 0) {
        return fail(ErrorKind::usage, "{} is no backbone of this hub: its receipts are worth nothing",
                    to_hex(receipt->backbone));
    }
    if (!verify(backbone->key, bytes, signature)) {
        return fail(ErrorKind::invalid, "the receipt is not signed by the backbone it names");
    }
    std::lock_guard lock(mutex_);
    const Instant time = now();
    const Digest digest = sha256(bytes);
    Result<std::optional<SettledReceipt>> before = store_.find_receipt(receipt->backbone, receipt->sequence);
    if (!before) return fail(before.error());
    if (*before) {
        if ((*before)->digest == digest) return Settlement{true, (*before)->paid, {}};
        return fail(ErrorKind::usage, "receipt {} of this backbone was settled with other contents", receipt->sequence);
    }
    const Demand* demand = find(receipt->model);
    if (demand == nullptr) return fail(ErrorKind::usage, "the model {} is not on the market", to_hex(receipt->model));
    Settlement settlement;
    std::vector<Entry> entries;
    Status failed;
    for (std::size_t line = 0; line < receipt->lines.size(); ++line) {
        settlement.lines.push_back(settle_line(*receipt, line, *demand, backbone->owner, time, entries, failed));
        if (!failed) return fail(failed.error());
    }
    for (const Entry& entry : entries)
        settlement.paid += entry.amount;
    const SettledReceipt settled{receipt->backbone, receipt->sequence, digest, time, settlement.paid};
    if (Status written = store_.settle(settled, entries); !written) return fail(written.error());
    prove_by_receipt(*receipt, settlement.lines, time);
    return settlement;
}

LineOutcome Market::settle_line(const Receipt& receipt, std::size_t index, const Demand& demand, const OwnerId& payer,
                                Instant time, std::vector<Entry>& entries, Status& failed) {
    const ReceiptLine& line = receipt.lines[index];
    const LiveLease* live = book_.find(line.worker);
    std::optional<LeaseRecord> past;
    if (live == nullptr || live->record.epoch != line.epoch) {
        Result<std::optional<LeaseRecord>> found = store_.find_lease(line.worker, line.epoch);
        if (!found) {
            failed = fail(found.error());
            return LineOutcome::unknown_lease;
        }
        past = std::move(*found);
        if (!past || (past->end != LeaseEnd::live && past->ended + rules_.receipt_window < time)) {
            return LineOutcome::unknown_lease;
        }
    }
    const LeaseRecord& lease = past ? *past : live->record;
    if (lease.end == LeaseEnd::convicted) return LineOutcome::convicted;
    if (lease.owner == payer) return LineOutcome::self_dealing;
    const LeasedPiece* leased = lease.model == receipt.model ? find_piece(lease, line.piece) : nullptr;
    if (leased == nullptr) return LineOutcome::not_leased;
    const std::uint64_t expert_bytes = demand.offer().layers()[demand.offer().find(line.piece.layer)].expert_bytes;
    const std::optional<Micros> amount = reward(line.rows, expert_bytes, leased->rate);
    // No sum of a receipt, and no balance of a million receipts, may leave 64 bits.
    if (!amount || *amount > Micros{1} << 42) return LineOutcome::too_large;
    entries.push_back({.at = time,
                       .owner = lease.owner,
                       .worker = line.worker,
                       .backbone = receipt.backbone,
                       .sequence = receipt.sequence,
                       .line = static_cast<std::uint32_t>(index),
                       .model = receipt.model,
                       .piece = line.piece,
                       .epoch = line.epoch,
                       .rows = line.rows,
                       .expert_bytes = expert_bytes,
                       .rate = leased->rate,
                       .amount = *amount});
    return LineOutcome::paid;
}

// Accepted work proves as well as a probe that what served still serves.
void Market::prove_by_receipt(const Receipt& receipt, const std::vector<LineOutcome>& lines, Instant time) {
    for (std::size_t index = 0; index < lines.size(); ++index) {
        const ReceiptLine& line = receipt.lines[index];
        LiveLease* live = book_.find(line.worker);
        if (lines[index] != LineOutcome::paid || live == nullptr || live->record.epoch != line.epoch) continue;
        for (std::size_t i = 0; i < live->record.pieces.size(); ++i) {
            const LeasedPiece& leased = live->record.pieces[i];
            if (!leased.serving() || !within(line.piece, leased.piece)) continue;
            LeaseBook::set_proof(*live, i, leased.since, std::max(leased.proved, time + rules_.proof));
        }
        LeaseBook::set_next_check(*live, rules_);
    }
}

}  // namespace kvasir::market
