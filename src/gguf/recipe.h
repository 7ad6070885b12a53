// The recipe of an expert FFN: everything that turns (weights, hidden row) into an output row, besides the numbers in
// the weights. It is read off a header (gguf/expert_map.h) or off llama.cpp's compute graph (backbone/), travels in
// the handshake, and is what a worker computes by.
//
//   gate_up = [gate|up]_exps · x, separate or fused      (x: one hidden row)
//   g = gate · x  * gate_scale[e] + gate_bias[e]          (what is absent is left out)
//   u = up · x    * up_scale[e]   + up_bias[e]
//   h = activation(g, u), or activation(u) where there is no gate
//   y = down · h  * down_scale[e] + down_bias[e]
//
// The router's weight is no part of it: the backbone applies it, before (llama4) or after (all others).
#pragma once

#include <cstdint>
#include <string>

#include "base/bytes.h"
#include "base/result.h"

namespace kvasir {

// Values are wire and manifest format: never renumber.
enum class Activation : std::uint8_t {
    silu = 0,            // gated: SwiGLU, silu(g) * u
    gelu = 1,            // gated: GeGLU (tanh approximation, as ggml_gelu)
    relu = 2,            // gated: ReGLU
    relu_squared = 3,    // ungated only: relu(u)^2
    swiglu_oai = 4,      // gated only: ggml_swiglu_oai with `alpha` and `limit`
    swiglu_clamp = 5,    // gated only: ggml_swiglu_clamp with `limit`
    swiglu_limited = 6,  // gated only: min(silu(g), limit) * clamp(u, -limit, limit)
    unknown = 255,       // a header does not tell; never computed with
};

struct Recipe {
    Activation activation = Activation::unknown;
    bool gated = true;
    bool fused_gate_up = false;  // one tensor holds gate rows, then up rows; its bias and scale likewise
    bool gate_bias = false;      // with fused_gate_up: `up_bias` and `up_scale` stand for the fused tensor's
    bool up_bias = false;
    bool down_bias = false;
    bool gate_scale = false;  // one f32 per expert
    bool up_scale = false;
    bool down_scale = false;
    float alpha = 0.0F;
    float limit = 0.0F;

    bool operator==(const Recipe&) const = default;
};

// "SwiGLU", "SwiGLU-OAI(alpha 1.702, limit 7), fused gate/up, biases", …
std::string describe(const Recipe& recipe);

// Refuses by name what cannot be: unknown activations, a gate's bias without a gate, a limit where none belongs.
Status check(const Recipe& recipe);

// 16 bytes: activation u8, flags u16 (bit order as the fields above), version u8 = 1, alpha f32, limit f32, zero u32.
inline constexpr std::size_t kRecipeBytes = 16;
void write_recipe(ByteWriter& writer, const Recipe& recipe);
// Refuses unknown activations, versions, flags and combinations by name.
Result<Recipe> read_recipe(ByteReader& reader);

}  // namespace kvasir
