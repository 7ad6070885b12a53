#include "base/temp_directory.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

namespace kvasir {

Result<TempDirectory> TempDirectory::create(std::string_view prefix) {
    std::error_code error;
    std::filesystem::path base = std::filesystem::temp_directory_path(error);
    if (error) return fail(ErrorKind::io, "the temporary directory, $TMPDIR or /tmp, is none: {}", error.message());
    std::string pattern = (base / fmt::format("{}XXXXXX", prefix)).string();
    if (::mkdtemp(pattern.data()) == nullptr) {
        return fail(ErrorKind::io, "{}: cannot create a directory: {}", base.string(), std::strerror(errno));
    }
    return TempDirectory(pattern);
}

TempDirectory::~TempDirectory() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}
TempDirectory::TempDirectory(TempDirectory&& other) noexcept : path_(std::exchange(other.path_, {})) {}

}  // namespace kvasir
