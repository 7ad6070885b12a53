// What portable_bits checks, and its score.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "portable/elsewhere/implementation.h"

namespace kvasir::portable::test {

class Score {
  public:
    // Counts; says what failed.
    void count(bool passed, std::string_view what);
    std::size_t passed() const { return passed_; }
    std::size_t failed() const { return failed_; }

  private:
    std::size_t passed_ = 0;
    std::size_t failed_ = 0;
};

// Every case of docs/portable-vectors, which lies in `directory`.
void check_vectors(const std::string& directory, const Implementation& implementation, Score& score);

// Random inputs, where all must agree with the first, the reference. The digest is of everything it computed.
std::uint64_t check_random(const std::vector<Implementation>& implementations, Score& score);

}  // namespace kvasir::portable::test
