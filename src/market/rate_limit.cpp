#include "market/rate_limit.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <vector>

#include "base/bytes.h"

namespace kvasir::market {
namespace {

// At least so long between two searches for full buckets: a flood must not make each of its requests search.
constexpr Duration kForgetEvery = std::chrono::seconds(1);

constexpr std::array<std::uint8_t, 12> kMapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

struct Bits {
    int v4 = 32;
    int v6 = 64;
};

std::string prefix_text(int family, std::array<std::uint8_t, 16> bytes, int bits) {
    for (int bit = bits; bit < 128; ++bit)
        bytes[static_cast<std::size_t>(bit / 8)] &= static_cast<std::uint8_t>(~(0x80 >> (bit % 8)));
    std::array<char, INET6_ADDRSTRLEN> text{};
    ::inet_ntop(family, bytes.data(), text.data(), text.size());
    return std::string(text.data()) + "/" + std::to_string(bits);
}

std::string prefix_of(std::string_view address, Bits bits) {
    const std::string text(address);
    std::array<std::uint8_t, 16> bytes{};
    if (::inet_pton(AF_INET, text.c_str(), bytes.data()) == 1) return prefix_text(AF_INET, bytes, bits.v4);
    if (::inet_pton(AF_INET6, text.c_str(), bytes.data()) != 1) return text;
    if (std::equal(kMapped.begin(), kMapped.end(), bytes.begin())) {
        std::copy(bytes.begin() + 12, bytes.end(), bytes.begin());
        return prefix_text(AF_INET, bytes, bits.v4);
    }
    return prefix_text(AF_INET6, bytes, bits.v6);
}

}  // namespace

Duration RateLimiter::take(std::string_view name, Instant now) {
    auto found = buckets_.find(std::string(name));
    if (found == buckets_.end()) {
        if (buckets_.size() >= capacity_) forget_full(now);
        if (buckets_.size() >= capacity_) return kForgetEvery;
        found = buckets_.emplace(std::string(name), Bucket{limit_.burst, now}).first;
    }
    Bucket& bucket = found->second;
    bucket = {refilled(bucket, now), std::max(bucket.updated, now)};
    if (bucket.tokens < 1) {
        return Duration(static_cast<Duration::rep>(std::ceil((1 - bucket.tokens) / limit_.per_second * 1000)));
    }
    bucket.tokens -= 1;
    return Duration(0);
}

double RateLimiter::refilled(const Bucket& bucket, Instant now) const {
    const double seconds = std::max(0.0, std::chrono::duration<double>(now - bucket.updated).count());
    return std::min(limit_.burst, bucket.tokens + seconds * limit_.per_second);
}

void RateLimiter::forget_full(Instant now) {
    if (now < forgotten_ + kForgetEvery && now >= forgotten_) return;
    forgotten_ = now;
    std::erase_if(buckets_, [&](const auto& each) { return refilled(each.second, now) >= limit_.burst; });
}

std::string client_of(std::string_view address) {
    return prefix_of(address, {32, 64});
}

std::string site_of(std::string_view address) {
    return prefix_of(address, {24, 48});
}

}  // namespace kvasir::market
