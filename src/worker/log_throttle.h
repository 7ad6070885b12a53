// Keeps one noisy source from filling the log.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>

namespace kvasir {

// Thread-safe; its memory is bounded however many sources there are.
class LogThrottle {
  public:
    using Clock = std::chrono::steady_clock;

    explicit LogThrottle(Clock::duration interval = std::chrono::seconds(10)) : interval_(interval) {}

    // Whether to log a line about `source` now; if so, how many were kept back since the last.
    std::optional<std::uint64_t> admit(const std::string& source, Clock::time_point now = Clock::now());

  private:
    struct Entry {
        Clock::time_point last;
        std::uint64_t kept_back = 0;
    };
    const Clock::duration interval_;
    std::mutex mutex_;
    std::map<std::string, Entry> entries_;
};

}  // namespace kvasir
