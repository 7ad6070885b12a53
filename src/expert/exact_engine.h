// Computes in `exact`.
#pragma once

#include <memory>

#include "expert/engine.h"
#include "expert/team.h"

namespace kvasir {

std::unique_ptr<Engine> make_exact_engine(std::unique_ptr<Team> team);

}  // namespace kvasir
