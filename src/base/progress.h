// Progress of long work on stderr: one line redrawn on a terminal, a plain line every few seconds elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace kvasir {

enum class ProgressUnit { bytes, count };

// Not thread-safe. Says nothing for work that ends within half a second. The destructor ends the line.
class Progress {
  public:
    // `total` in `unit`s; 0 = unknown. `quiet` silences it.
    Progress(std::string title, std::uint64_t total, ProgressUnit unit, bool quiet = false);
    ~Progress();
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;

    void add(std::uint64_t amount);
    // Draws the final state and ends the line; further calls do nothing.
    void finish();

  private:
    void draw(bool last);

    std::string title_;
    std::uint64_t total_;
    std::uint64_t done_ = 0;
    ProgressUnit unit_;
    bool quiet_;
    bool terminal_;
    bool drawn_ = false;
    bool finished_ = false;
    std::chrono::steady_clock::time_point start_;
    std::chrono::steady_clock::time_point last_drawn_;
};

}  // namespace kvasir
