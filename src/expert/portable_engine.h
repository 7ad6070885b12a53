// Computes in `portable` (docs/portable-arithmetic.md, section 6), with the fastest kernels that this machine has.
#pragma once

#include <memory>

#include "expert/engine.h"
#include "expert/team.h"

namespace kvasir {

std::unique_ptr<Engine> make_portable_engine(std::unique_ptr<Team> team);

}  // namespace kvasir
