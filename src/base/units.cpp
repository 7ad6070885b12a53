#include "base/units.h"

#include <array>
#include <charconv>
#include <cmath>
#include <limits>

namespace kvasir {
namespace {

struct Unit {
    std::string_view name;  // lower case
    double factor;
};
constexpr std::array<Unit, 13> kUnits = {{{"", 1},
                                          {"b", 1},
                                          {"k", 1e3},
                                          {"kb", 1e3},
                                          {"kib", 1024.0},
                                          {"m", 1e6},
                                          {"mb", 1e6},
                                          {"mib", 1048576.0},
                                          {"g", 1e9},
                                          {"gb", 1e9},
                                          {"gib", 1073741824.0},
                                          {"tb", 1e12},
                                          {"tib", 1099511627776.0}}};

// Three significant digits.
std::string three_digits(double value) {
    int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
    return fmt::format("{:.{}f}", value, decimals);
}

}  // namespace

std::string human_bytes(std::uint64_t bytes) {
    constexpr std::array<const char*, 6> kNames = {"B", "kB", "MB", "GB", "TB", "PB"};
    auto value = static_cast<double>(bytes);
    std::size_t unit = 0;
    while (value >= 999.5 && unit + 1 < kNames.size()) {
        value /= 1000;
        ++unit;
    }
    if (unit == 0) return fmt::format("{} B", bytes);
    return fmt::format("{} {}", three_digits(value), kNames[unit]);
}

std::string human_count(std::uint64_t count) {
    std::string digits = std::to_string(count);
    for (std::size_t at = digits.size(); at > 3; at -= 3)
        digits.insert(at - 3, 1, ',');
    return digits;
}

std::string human_seconds(double seconds) {
    if (!(seconds >= 0)) return "unknown";
    if (seconds < 0.9995e-3) return fmt::format("{} us", std::lround(seconds * 1e6));
    if (seconds < 0.9995) return fmt::format("{} ms", three_digits(seconds * 1e3));
    if (seconds < 119.5) return fmt::format("{} s", three_digits(seconds));
    auto whole = static_cast<long>(std::lround(seconds));
    if (whole < 7200) return fmt::format("{} min {} s", whole / 60, whole % 60);
    return fmt::format("{} h {} min", whole / 3600, whole % 3600 / 60);
}

Result<std::uint64_t> parse_bytes(std::string_view text) {
    double number = 0;
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
    std::string name;
    for (char c : text.substr(static_cast<std::size_t>(end - text.data()))) {
        if (c != ' ') name += static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    }
    for (const Unit& unit : kUnits) {
        if (error != std::errc{} || unit.name != name) continue;
        double bytes = number * unit.factor;
        if (!(bytes >= 1)) return fail(ErrorKind::usage, "'{}' is no usable size: it must be more than zero", text);
        if (bytes >= 9e18) return fail(ErrorKind::usage, "'{}' is too large a size", text);
        return static_cast<std::uint64_t>(std::llround(bytes));
    }
    return fail(ErrorKind::usage, "'{}' is not a size: write it like 4GiB, 500MB or 4096", text);
}

}  // namespace kvasir
