// Where a user's files are kept: $KVASIR_HOME for all of them, or as the XDG base directory specification says.
#pragma once

#include <filesystem>

namespace kvasir {

// $KVASIR_HOME, or $XDG_CONFIG_HOME/kvasir, or ~/.config/kvasir.
std::filesystem::path config_directory();
// $KVASIR_HOME, or $XDG_STATE_HOME/kvasir, or ~/.local/state/kvasir.
std::filesystem::path state_directory();

}  // namespace kvasir
