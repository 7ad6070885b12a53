// An arithmetic: the exact numbers that a pair (row, expert) produces. Backbone and worker agree on one in the
// handshake; equal names promise equal bits.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace kvasir {

enum class Arithmetic : std::uint8_t {
    portable,  // "portable/1": the same on every device (docs/portable-arithmetic.md)
    ggml_cpu,  // "ggml-cpu/0.25.1/x86_64-avx512-vnni-…": ggml's own CPU kernels, stock llama.cpp's bits on this machine
    exact,     // f64 on the dequantised weights, rounded to f32: what the others are held against; slow, never offered
};

// What this build can compute in, best first.
std::vector<Arithmetic> known_arithmetics();

// As it is called in the handshake.
std::string wire_name(Arithmetic arithmetic);
// None for the name of another version, another instruction set, or none of ours.
std::optional<Arithmetic> find_arithmetic(std::string_view wire_name);

// As users call it: "portable", "ggml-cpu".
std::string_view short_name(Arithmetic arithmetic);
Result<Arithmetic> parse_arithmetic(std::string_view short_name);

// Sets what ggml must find in the environment before its first use for its kernels to be row-independent
// (GGML_NO_IQ_PANEL, see ggml_engine.cpp). Call first thing in main().
void select_exact_kernels();

}  // namespace kvasir
