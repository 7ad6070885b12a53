// Every kind of recipe that can be computed, for tests that run over all of them.
#pragma once

#include <vector>

#include "gguf/recipe.h"

namespace kvasir::test {

struct NamedRecipe {
    const char* name;
    Recipe recipe;
};
std::vector<NamedRecipe> all_recipes();

}  // namespace kvasir::test
