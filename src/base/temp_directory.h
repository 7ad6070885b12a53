// A private directory that goes when its owner goes.
#pragma once

#include <filesystem>
#include <string_view>

#include "base/result.h"

namespace kvasir {

class TempDirectory {
  public:
    // Under $TMPDIR or /tmp, mode 0700, its name beginning with `prefix`.
    static Result<TempDirectory> create(std::string_view prefix);
    ~TempDirectory();
    TempDirectory(TempDirectory&& other) noexcept;
    TempDirectory& operator=(TempDirectory&&) = delete;

    const std::filesystem::path& path() const { return path_; }

  private:
    explicit TempDirectory(std::filesystem::path path) : path_(std::move(path)) {}
    std::filesystem::path path_;
};

}  // namespace kvasir
