// Time as the market sees it: its own clock, injected, so that a week can pass in a test.
#pragma once

#include <atomic>
#include <chrono>

namespace kvasir::market {

using Duration = std::chrono::milliseconds;
using Instant = std::chrono::sys_time<Duration>;

// Thread-safe.
class Clock {
  public:
    virtual ~Clock() = default;
    virtual Instant now() const = 0;
};

class SystemClock : public Clock {
  public:
    Instant now() const override { return std::chrono::floor<Duration>(std::chrono::system_clock::now()); }
};

// Stands still until it is moved.
class ManualClock : public Clock {
  public:
    explicit ManualClock(Instant start) : now_(start.time_since_epoch().count()) {}
    Instant now() const override { return Instant(Duration(now_.load())); }
    void advance(Duration by) { now_ += by.count(); }
    void set(Instant to) { now_ = to.time_since_epoch().count(); }

  private:
    std::atomic<Duration::rep> now_;
};

}  // namespace kvasir::market
