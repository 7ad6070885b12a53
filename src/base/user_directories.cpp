#include "base/user_directories.h"

#include <pwd.h>
#include <unistd.h>

#include <cstdlib>

namespace kvasir {
namespace {

std::filesystem::path home_directory() {
    if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0') return home;
    const passwd* entry = ::getpwuid(::getuid());
    return entry != nullptr ? entry->pw_dir : "/";
}

std::filesystem::path directory(const char* variable, const std::filesystem::path& below_home) {
    if (const char* home = std::getenv("KVASIR_HOME"); home != nullptr && *home != '\0') return home;
    // The XDG specification: a relative path there is to be ignored.
    if (const char* base = std::getenv(variable); base != nullptr && *base == '/') {
        return std::filesystem::path(base) / "kvasir";
    }
    return home_directory() / below_home / "kvasir";
}

}  // namespace

std::filesystem::path config_directory() {
    return directory("XDG_CONFIG_HOME", ".config");
}

std::filesystem::path state_directory() {
    return directory("XDG_STATE_HOME", ".local/state");
}

}  // namespace kvasir
