// Quantities for people: "5.3 MB", "4GiB", "1.2 s".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace kvasir {

// Decimal units, three significant digits: 999 B, 5.31 MB, 77.6 GB.
std::string human_bytes(std::uint64_t bytes);
// 12,544
std::string human_count(std::uint64_t count);
// 850 us, 12.3 ms, 4.2 s, 3 min 20 s
std::string human_seconds(double seconds);

// "4GiB", "500 MB", "1.5g" (powers of 1000, as are kB/MB/GB; KiB/MiB/GiB are powers of 1024), "4096". More than zero.
Result<std::uint64_t> parse_bytes(std::string_view text);

}  // namespace kvasir
