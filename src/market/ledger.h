// The ledger's entries as text, chained by hashes, so that anybody can check an export, and settle it elsewhere.
//
// One line an entry: {"hash":"<64 hex>","body":{…}}. The hash is the SHA-256 of the body's bytes as they stand there;
// the body's "previous" is the hash of the entry before (64 zeros for the first). Keys come in a fixed order; numbers
// are whole.
#pragma once

#include <functional>
#include <istream>
#include <string>

#include "market/store.h"

namespace kvasir::market {

std::string entry_body(const Entry& entry);
Digest entry_hash(const Entry& entry);
std::string export_line(const Entry& entry);

// Every entry from number `first` on, a line each; `write` says false to end it.
Status export_ledger(Store& store, std::uint64_t first, const std::function<bool(std::string_view line)>& write);

// Checks an export that begins with the first entry: hashes, chain, numbers, and that amounts are what rows, bytes and
// rate make. ErrorKind::mismatch names the line.
Result<LedgerState> check_export(std::istream& lines);

}  // namespace kvasir::market
