#include "base/hex.h"

namespace kvasir {
namespace {

int hex_value(char digit) {
    if (digit >= '0' && digit <= '9') return digit - '0';
    if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
    if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
    return -1;
}

}  // namespace

std::string hex(ByteSpan bytes) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    std::string digits;
    digits.reserve(2 * bytes.size());
    for (std::byte byte : bytes) {
        digits += kDigits[std::to_integer<unsigned>(byte >> 4)];
        digits += kDigits[std::to_integer<unsigned>(byte & std::byte{15})];
    }
    return digits;
}

Result<ByteVector> bytes_from_hex(std::string_view digits) {
    if (digits.size() % 2 != 0) return fail(ErrorKind::invalid, "{} hex digits make no whole bytes", digits.size());
    ByteVector bytes(digits.size() / 2);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        const int high = hex_value(digits[2 * i]);
        const int low = hex_value(digits[2 * i + 1]);
        if (high < 0 || low < 0) {
            return fail(ErrorKind::invalid, "'{}' at {} is no hex byte", digits.substr(2 * i, 2), 2 * i);
        }
        bytes[i] = static_cast<std::byte>(high * 16 + low);
    }
    return bytes;
}

}  // namespace kvasir
