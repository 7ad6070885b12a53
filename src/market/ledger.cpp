#include "market/ledger.h"

#include <nlohmann/json.hpp>

namespace kvasir::market {
namespace {

constexpr std::string_view kBefore = R"({"hash":")";
constexpr std::string_view kBetween = R"(","body":)";
constexpr std::size_t kBodyAt = kBefore.size() + 64 + kBetween.size();

// What the chain needs of a line, or why it is none.
Result<std::string> body_of(const std::string& line) {
    if (line.size() <= kBodyAt + 1 || line.compare(0, kBefore.size(), kBefore) != 0 ||
        line.compare(kBefore.size() + 64, kBetween.size(), kBetween) != 0 || line.back() != '}') {
        return fail(ErrorKind::mismatch, "is not an entry of an export");
    }
    std::string body = line.substr(kBodyAt, line.size() - kBodyAt - 1);
    if (line.substr(kBefore.size(), 64) != to_hex(sha256(std::as_bytes(std::span(body))))) {
        return fail(ErrorKind::mismatch, "its hash is not its body's");
    }
    return body;
}

Status check_body(const std::string& body, const LedgerState& before, Micros& amount) {
    const nlohmann::json json = nlohmann::json::parse(body, nullptr, false);
    auto number = [&](const char* key) -> std::uint64_t {
        const auto found = json.find(key);
        return found != json.end() && found->is_number_unsigned() ? found->get<std::uint64_t>() : 0;
    };
    if (!json.is_object()) return fail(ErrorKind::mismatch, "its body is not an object");
    if (json.value("previous", "") != to_hex(before.head)) {
        return fail(ErrorKind::mismatch, "it does not follow the entry before it");
    }
    if (number("entry") != before.entries + 1) {
        return fail(ErrorKind::mismatch, "it is number {} where {} should be", number("entry"), before.entries + 1);
    }
    const std::optional<Micros> paid = reward(number("rows"), number("expert_bytes"), number("rate"));
    if (!paid || static_cast<std::uint64_t>(*paid) != number("amount")) {
        return fail(ErrorKind::mismatch, "its amount is not rows * expert_bytes * rate / 10^9");
    }
    amount = *paid;
    return {};
}

}  // namespace

std::string entry_body(const Entry& entry) {
    return fmt::format(
        R"({{"entry":{},"previous":"{}","at_ms":{},"owner":"{}","worker":"{}","backbone":"{}","sequence":{},"line":{},)"
        R"("model":"{}","layer":{},"first":{},"count":{},"epoch":{},"rows":{},"expert_bytes":{},"rate":{},)"
        R"("amount":{}}})",
        entry.number, to_hex(entry.previous), entry.at.time_since_epoch().count(), to_hex(entry.owner),
        to_hex(entry.worker), to_hex(entry.backbone), entry.sequence, entry.line, to_hex(entry.model),
        entry.piece.layer, entry.piece.first, entry.piece.count, entry.epoch, entry.rows, entry.expert_bytes,
        entry.rate, entry.amount);
}

Digest entry_hash(const Entry& entry) {
    const std::string body = entry_body(entry);
    return sha256(std::as_bytes(std::span(body)));
}

std::string export_line(const Entry& entry) {
    return fmt::format("{}{}{}{}}}", kBefore, to_hex(entry.hash), kBetween, entry_body(entry));
}

Status export_ledger(Store& store, std::uint64_t first, const std::function<bool(std::string_view line)>& write) {
    return store.visit_entries(first, [&](const Entry& entry) { return write(export_line(entry)); });
}

Result<LedgerState> check_export(std::istream& lines) {
    LedgerState state;
    std::string line;
    while (std::getline(lines, line)) {
        const std::string where = fmt::format("line {}", state.entries + 1);
        Result<std::string> body = body_of(line);
        if (!body) return fail(body.error().within(where));
        Micros amount = 0;
        if (Status ok = check_body(*body, state, amount); !ok) return fail(ok.error().within(where));
        state.head = sha256(std::as_bytes(std::span(*body)));
        state.total += amount;
        ++state.entries;
    }
    return state;
}

}  // namespace kvasir::market
