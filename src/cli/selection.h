// Which experts a command line selects.
#pragma once

#include <string>
#include <vector>

#include "gguf/piece.h"

namespace kvasir::cli {

struct Selection {
    std::string layers;  // "0-3,7"; empty: all
    std::string experts;
};

// "LAYERS:EXPERTS", as --piece takes it.
Result<Selection> parse_piece_option(const std::string& text);

// The pieces of all selections, normalized. ErrorKind::usage for what the model does not have.
Result<std::vector<Piece>> pieces_of(const ExpertMap& map, const std::vector<Selection>& selections);

}  // namespace kvasir::cli
