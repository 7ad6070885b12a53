// A table of text in aligned columns.
#pragma once

#include <string>
#include <vector>

namespace kvasir {

// Rows of cells (the first row is the heading); columns two spaces apart, each line indented by `indent` spaces.
std::string text_table(const std::vector<std::vector<std::string>>& rows, std::size_t indent = 2);

}  // namespace kvasir
