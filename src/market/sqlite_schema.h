// The tables in a hub's database, and how an older hub's become today's.
#pragma once

#include "market/sqlite.h"

namespace kvasir::market {

// Brings a new or older database to today's tables, in one transaction. One that is no hub's is ErrorKind::invalid,
// one of a newer hub ErrorKind::unsupported.
Status migrate(Database& database);

}  // namespace kvasir::market
