// Bytes as lower-case hexadecimal digits.
#pragma once

#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/result.h"

namespace kvasir {

std::string hex(ByteSpan bytes);
// An even number of digits, of either case; ErrorKind::invalid otherwise.
Result<ByteVector> bytes_from_hex(std::string_view digits);

}  // namespace kvasir
