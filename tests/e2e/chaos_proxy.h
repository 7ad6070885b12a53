// A TCP proxy that behaves badly on demand: between a backbone and a worker, for the end-to-end tests.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>

namespace kvasir::e2e {

enum class Mischief {
    none,     // passes bytes on
    corrupt,  // flips a bit in one of every few reads of the worker's answers
    cut,      // closes a connection after a number of bytes
    stall,    // takes bytes and passes nothing on
    drip,     // passes one byte at a time, with a pause
};

// Listens on a loopback port and connects to another. Mischief may change at any time. Joined on destruction.
class ChaosProxy {
  public:
    explicit ChaosProxy(std::uint16_t target_port);
    ~ChaosProxy();
    ChaosProxy(const ChaosProxy&) = delete;
    ChaosProxy& operator=(const ChaosProxy&) = delete;

    std::uint16_t port() const;
    void set(Mischief mischief);
    // How often mischief was really done: a test that needs it can tell that it happened.
    int deeds() const;

  private:
    struct State;
    std::unique_ptr<State> state_;
    std::thread thread_;
};

}  // namespace kvasir::e2e
