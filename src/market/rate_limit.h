// Token buckets: how often one key or one address may ask. Bounded memory, whoever asks.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_map>

#include "market/clock.h"

namespace kvasir::market {

struct RateLimit {
    double burst = 30;
    double per_second = 1;
};

// Not thread-safe.
class RateLimiter {
  public:
    // Of more than `capacity` names at once those that have been quiet longest are forgotten, which is no loss once
    // their buckets are full; while they are all busy, a new name is refused.
    RateLimiter(RateLimit limit, std::size_t capacity) : limit_(limit), capacity_(capacity) {}

    // Zero: go on, it was counted. Otherwise not allowed, and allowed again after so long at the earliest. A clock
    // that went backwards refills nothing.
    Duration take(std::string_view name, Instant now);
    std::size_t size() const { return buckets_.size(); }

  private:
    struct Bucket {
        double tokens = 0;
        Instant updated{};
    };
    double refilled(const Bucket& bucket, Instant now) const;
    void forget_full(Instant now);

    RateLimit limit_;
    std::size_t capacity_;
    std::unordered_map<std::string, Bucket> buckets_;
    Instant forgotten_{};
};

// What stands for an address in a rate limit, and for a site in the market: an IPv4 address's /24 or an IPv6 address's
// /48 as a site, the whole IPv4 address or an IPv6 /64 as a client. An IPv4 address in IPv6 clothes is an IPv4 one.
// What is no address stands for itself.
std::string client_of(std::string_view address);
std::string site_of(std::string_view address);

}  // namespace kvasir::market
