// The whole system on one machine, in a minute: a model is published and cut, three worker processes serve overlapping
// pieces, a backbone writes a story with them, one of them is killed in the middle of a token, and every bit is
// compared with what the backbone computes alone: in `portable` without workers, in `ggml-cpu` as stock llama.cpp.
#pragma once

#include <cstdint>
#include <filesystem>

#include "base/result.h"
#include "expert/arithmetic.h"

namespace kvasir {

struct DemoOptions {
    std::filesystem::path model;
    std::filesystem::path program;  // what is run as `program worker …`
    std::uint32_t tokens = 160;     // length of the story
    std::uint32_t seed = 1;
    Arithmetic arithmetic = Arithmetic::portable;
    int threads = 1;  // of the backbone and of stock llama.cpp; each worker has one
};

// Prints as it goes, to stdout. Returns the process's exit code: 0 when everything was identical, 1 when not. Ends
// early, with an error, once interrupted(). Registers the Kvasir backend: once per process. Leaves no file and no
// process behind, if signals end it politely (base/interrupt.h).
Result<int> run_demo(const DemoOptions& options);

}  // namespace kvasir
