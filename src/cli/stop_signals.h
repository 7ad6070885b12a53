// How a service waits for the signal that ends it.
#pragma once

#include <chrono>
#include <csignal>

namespace kvasir::cli {

// SIGTERM, SIGINT and SIGHUP, blocked in every thread started from now on and waited for by this one. What the process
// was started to ignore (nohup) stays ignored.
class StopSignals {
  public:
    StopSignals();
    // True if one came within `timeout`.
    bool wait(std::chrono::seconds timeout) const;
    // From now on a signal ends the process at once.
    void release() const;

  private:
    sigset_t set_{};
};

}  // namespace kvasir::cli
