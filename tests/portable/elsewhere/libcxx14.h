// Included before everything where the standard library is libc++ 14: it has C++20's constructors of std::span from
// any range, but keeps them behind a macro of its configuration.
#pragma once

#include <version>
#undef _LIBCPP_HAS_NO_INCOMPLETE_RANGES
