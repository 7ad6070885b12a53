// The ledger's half of SqliteStore.
#include <algorithm>
#include <map>

#include "market/ledger.h"
#include "market/sqlite_store.h"

namespace kvasir::market {
namespace {

constexpr const char* kEntries =
    "SELECT number, at, owner, worker, backbone, sequence, line, model, layer, first, count, epoch, rows, "
    "expert_bytes, "
    "rate, amount, hash FROM entry WHERE number >= ? ORDER BY number";

Entry entry_of(const Query& row) {
    return {.number = static_cast<std::uint64_t>(row.integer(0)),
            .at = Instant(Duration(row.integer(1))),
            .owner = row.digest(2),
            .worker = row.digest(3),
            .backbone = row.digest(4),
            .sequence = static_cast<std::uint64_t>(row.integer(5)),
            .line = static_cast<std::uint32_t>(row.integer(6)),
            .model = row.digest(7),
            .piece = {.layer = static_cast<std::uint32_t>(row.integer(8)),
                      .first = static_cast<std::uint32_t>(row.integer(9)),
                      .count = static_cast<std::uint32_t>(row.integer(10))},
            .epoch = static_cast<std::uint64_t>(row.integer(11)),
            .rows = static_cast<std::uint64_t>(row.integer(12)),
            .expert_bytes = static_cast<std::uint64_t>(row.integer(13)),
            .rate = static_cast<Rate>(row.integer(14)),
            .amount = row.integer(15),
            .hash = row.digest(16)};
}

struct Head {
    std::uint64_t number = 0;
    Digest hash{};
};

Result<Head> read_head(Database& database, std::uint64_t up_to) {
    Result<Query> query =
        database.query("SELECT number, hash FROM entry WHERE number <= ? ORDER BY number DESC LIMIT 1",
                       static_cast<std::int64_t>(up_to));
    if (!query) return fail(query.error());
    Result<bool> row = query->step();
    if (!row) return fail(row.error());
    if (!*row) return Head{};
    return Head{static_cast<std::uint64_t>(query->integer(0)), query->digest(1)};
}

constexpr std::uint64_t kLastNumber = std::uint64_t{1} << 62;

}  // namespace

Result<std::optional<SettledReceipt>> SqliteStore::find_receipt(const NodeId& backbone, std::uint64_t sequence) {
    std::lock_guard lock(mutex_);
    Result<Query> query = database_.query("SELECT digest, at, paid FROM receipt WHERE backbone = ? AND sequence = ?",
                                          ByteSpan(backbone), static_cast<std::int64_t>(sequence));
    if (!query) return fail(query.error());
    Result<bool> row = query->step();
    if (!row) return fail(row.error());
    if (!*row) return std::optional<SettledReceipt>();
    return std::optional(
        SettledReceipt{backbone, sequence, query->digest(0), Instant(Duration(query->integer(1))), query->integer(2)});
}

Status SqliteStore::settle(const SettledReceipt& receipt, std::span<Entry> entries) {
    std::lock_guard lock(mutex_);
    Result<Transaction> transaction = Transaction::begin(database_);
    if (!transaction) return fail(transaction.error());
    // The primary key refuses a second one of the same number, whoever asked before.
    Status added = database_.run("INSERT INTO receipt VALUES(?,?,?,?,?)", ByteSpan(receipt.backbone),
                                 static_cast<std::int64_t>(receipt.sequence), ByteSpan(receipt.digest),
                                 receipt.at.time_since_epoch().count(), receipt.paid);
    if (!added) return added;
    if (Status appended = append(entries); !appended) return appended;
    return transaction->commit();
}

Status SqliteStore::append(std::span<Entry> entries) {
    Result<Head> head = read_head(database_, kLastNumber);
    if (!head) return fail(head.error());
    std::map<OwnerId, Micros> sums;
    for (Entry& entry : entries) {
        entry.number = ++head->number;
        entry.previous = head->hash;
        entry.hash = head->hash = entry_hash(entry);
        Status added = database_.run(
            "INSERT INTO entry VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)", static_cast<std::int64_t>(entry.number),
            entry.at.time_since_epoch().count(), ByteSpan(entry.owner), ByteSpan(entry.worker),
            ByteSpan(entry.backbone), static_cast<std::int64_t>(entry.sequence), std::int64_t{entry.line},
            ByteSpan(entry.model), std::int64_t{entry.piece.layer}, std::int64_t{entry.piece.first},
            std::int64_t{entry.piece.count}, static_cast<std::int64_t>(entry.epoch),
            static_cast<std::int64_t>(entry.rows), static_cast<std::int64_t>(entry.expert_bytes),
            static_cast<std::int64_t>(entry.rate), entry.amount, ByteSpan(entry.hash));
        if (!added) return added;
        sums[entry.owner] += entry.amount;
    }
    for (const auto& [owner, sum] : sums) {
        Status credited = database_.run(
            "INSERT INTO balance VALUES(?,?) ON CONFLICT(owner) DO UPDATE SET amount = amount + excluded.amount",
            ByteSpan(owner), sum);
        if (!credited) return credited;
    }
    return {};
}

Result<Micros> SqliteStore::balance(const OwnerId& owner) {
    std::lock_guard lock(mutex_);
    Result<Query> query = database_.query("SELECT amount FROM balance WHERE owner = ?", ByteSpan(owner));
    if (!query) return fail(query.error());
    Result<bool> row = query->step();
    if (!row) return fail(row.error());
    return *row ? query->integer(0) : 0;
}

Result<std::vector<Earning>> SqliteStore::earnings(const OwnerId& owner, std::int64_t from_day, std::int64_t to_day,
                                                   std::uint32_t limit) {
    constexpr std::int64_t kDay = 86'400'000;
    constexpr std::int64_t kFarthest = 100'000'000;  // days that fit in milliseconds
    from_day = std::clamp(from_day, -kFarthest, kFarthest);
    to_day = std::clamp(to_day, -kFarthest, kFarthest);
    std::lock_guard lock(mutex_);
    Result<Query> query = database_.query(
        "SELECT worker, model, layer, first, count, at / 86400000 AS day, sum(rows), sum(amount) FROM entry "
        "WHERE owner = ? AND at >= ? AND at < ? GROUP BY day, worker, model, layer, first, count "
        "ORDER BY day DESC, worker, model, layer, first, count LIMIT ?",
        ByteSpan(owner), from_day * kDay, (to_day + 1) * kDay, std::int64_t{limit});
    if (!query) return fail(query.error());
    std::vector<Earning> earnings;
    while (true) {
        Result<bool> row = query->step();
        if (!row) return fail(row.error());
        if (!*row) return earnings;
        earnings.push_back({.worker = query->digest(0),
                            .model = query->digest(1),
                            .piece = {.layer = static_cast<std::uint32_t>(query->integer(2)),
                                      .first = static_cast<std::uint32_t>(query->integer(3)),
                                      .count = static_cast<std::uint32_t>(query->integer(4))},
                            .day = query->integer(5),
                            .rows = static_cast<std::uint64_t>(query->integer(6)),
                            .amount = query->integer(7)});
    }
}

Result<LedgerState> SqliteStore::ledger() {
    std::lock_guard lock(mutex_);
    Result<Head> head = read_head(database_, kLastNumber);
    if (!head) return fail(head.error());
    Result<std::int64_t> total = database_.integer("SELECT coalesce(sum(amount), 0) FROM balance");
    if (!total) return fail(total.error());
    return LedgerState{head->number, head->hash, *total};
}

Status SqliteStore::visit_entries(std::uint64_t first, const std::function<bool(const Entry&)>& visit) {
    // In portions, so that a long export keeps nobody out for long.
    constexpr std::size_t kPortion = 1000;
    std::vector<Entry> portion;
    while (true) {
        portion.clear();
        {
            std::lock_guard lock(mutex_);
            Status read = visit_locked(first, [&](const Entry& entry) {
                portion.push_back(entry);
                return portion.size() < kPortion;
            });
            if (!read) return read;
        }
        for (const Entry& entry : portion) {
            if (!visit(entry)) return {};
        }
        if (portion.size() < kPortion) return {};
        first = portion.back().number + 1;
    }
}

Status SqliteStore::visit_locked(std::uint64_t first, const std::function<bool(const Entry&)>& visit) {
    first = std::clamp<std::uint64_t>(first, 1, kLastNumber);
    Result<Head> head = read_head(database_, first - 1);
    if (!head) return fail(head.error());
    Result<Query> query = database_.query(kEntries, static_cast<std::int64_t>(first));
    if (!query) return fail(query.error());
    while (true) {
        Result<bool> row = query->step();
        if (!row) return fail(row.error());
        if (!*row) return {};
        Entry entry = entry_of(*query);
        entry.previous = head->hash;
        head->hash = entry.hash;
        if (!visit(entry)) return {};
    }
}

Status SqliteStore::check_ledger() {
    std::lock_guard lock(mutex_);
    std::map<OwnerId, Micros> sums;
    std::uint64_t expected = 0;
    Status wrong;
    Status visited = visit_locked(1, [&](const Entry& entry) {
        if (entry.number != ++expected) {
            wrong = fail(ErrorKind::mismatch, "ledger: entry {} is missing", expected);
        } else if (entry_hash(entry) != entry.hash) {
            wrong = fail(ErrorKind::mismatch, "ledger: entry {} is not what its hash says", entry.number);
        } else if (reward(entry.rows, entry.expert_bytes, entry.rate) != entry.amount) {
            wrong = fail(ErrorKind::mismatch, "ledger: entry {} pays {}, which is not its work's worth", entry.number,
                         entry.amount);
        }
        sums[entry.owner] += entry.amount;
        return wrong.has_value();
    });
    if (!visited) return visited;
    if (!wrong) return wrong;
    Result<Query> query = database_.query("SELECT owner, amount FROM balance");
    if (!query) return fail(query.error());
    while (true) {
        Result<bool> row = query->step();
        if (!row) return fail(row.error());
        if (!*row) break;
        const OwnerId owner = query->digest(0);
        const Micros balance = query->integer(1);
        auto sum = sums.find(owner);
        if (sum == sums.end() || sum->second != balance) {
            return fail(ErrorKind::mismatch, "ledger: the balance of {} is {}, its entries add up to {}", to_hex(owner),
                        balance, sum == sums.end() ? 0 : sum->second);
        }
        sums.erase(sum);
    }
    if (sums.empty()) return {};
    return fail(ErrorKind::mismatch, "ledger: {} has entries but no balance", to_hex(sums.begin()->first));
}

}  // namespace kvasir::market
