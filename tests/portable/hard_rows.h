// Inputs that reach what is rare: rows of numbers and their bytes, the same on every machine.
#pragma once

#include <vector>

#include "portable/random.h"

namespace kvasir::portable::test {

// Row of a kind, each hard in another way (there are eight).
std::vector<float> hard_row(Random& random, std::size_t columns, std::uint64_t kind);

// The bytes of `count` rows of a form: mostly what a quantiser gives, now and then anything at all.
ByteVector hard_rows(Random& random, Form form, std::size_t columns, std::size_t count);

// Every function as it may occur: with a gate, without, or both.
struct FunctionCase {
    Activation activation;
    bool gated = false;
};
std::vector<FunctionCase> function_cases();

// Numbers of columns that a type can hold, none, one or many times what the kernels take at once.
std::vector<std::size_t> lengths(ggml_type type);

}  // namespace kvasir::portable::test
