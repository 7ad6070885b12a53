// portable_instructions_*: the products of ggml and of the fastest kernels between two marks, for an emulator that
// writes down every instruction (scripts/portable-speed.sh counts). One line a measurement, in their order:
//     TYPE IMPLEMENTATION ROWS STRETCHES
// where a stretch is 256 weights times all rows. No count depends on the numbers, so all are zero.
#include <cstdio>

#include "portable/elsewhere/ggml_dots.h"
#include "portable/kernels.h"

// Calls to these are the marks. The emulator names them by their symbols.
extern "C" {
[[gnu::noinline]] void count_begin() {
    asm volatile("" ::: "memory");
}
[[gnu::noinline]] void count_end() {
    asm volatile("" ::: "memory");
}
}

namespace kvasir::portable::test {
namespace {

constexpr std::size_t kOutputs = 32;
constexpr std::size_t kColumns = 1024;

template <class Compute>
void count(ggml_type type, std::string_view implementation, std::size_t rows, Compute compute) {
    std::printf("%s %.*s %zu %zu\n", ggml_type_name(type), static_cast<int>(implementation.size()),
                implementation.data(), rows, kOutputs * kColumns / 256);
    count_begin();
    compute();
    count_end();
}

void count_ggml(const GgmlDot& dot, const std::byte* weights, std::size_t rows) {
    const std::size_t row_bytes = weight_row_bytes(dot.type, kColumns);
    const std::size_t activation_bytes = ggml_row_size(dot.row_type, kColumns);
    const ByteVector activations(rows * activation_bytes);
    std::vector<float> out(rows * kOutputs);
    count(dot.type, "ggml", rows, [&] {
        for (std::size_t row = 0; row < rows; ++row) {
            for (std::size_t output = 0; output < kOutputs; ++output) {
                dot.function(kColumns, &out[row * kOutputs + output], 0, weights + output * row_bytes, 0,
                             &activations[row * activation_bytes], 0, 1);
            }
        }
    });
#if defined(KVASIR_GGML_BY_TWO)
    if (!dot.by_two || rows == 1) return;
    count(dot.type, "ggml_by_two", rows, [&] {
        for (std::size_t row = 0; row < rows; row += 2) {
            for (std::size_t output = 0; output < kOutputs; output += 2) {
                dot.function(kColumns, &out[row * kOutputs + output], kOutputs, weights + output * row_bytes, row_bytes,
                             &activations[row * activation_bytes], activation_bytes, 2);
            }
        }
    });
#endif
}

void count_kernels(ggml_type type, const std::byte* weights, std::size_t rows) {
    const Form form = traits(type).form;
    const ByteVector activations(rows * row_bytes(form, kColumns));
    const PreparedRows prepared(form, kColumns, rows, activations.data());
    const Matrix matrix{type, kOutputs, kColumns, weights};
    std::vector<float> out(rows * kOutputs);
    const Kernels kernels;
    // What is made on first use.
    kernels.multiply(matrix, prepared, 0, kOutputs, out.data(), kOutputs);
    count(type, name_of(kernels.isa()), rows,
          [&] { kernels.multiply(matrix, prepared, 0, kOutputs, out.data(), kOutputs); });
}

void count_all() {
    for (const GgmlDot& dot : ggml_dots()) {
        const ByteVector weights(kOutputs * weight_row_bytes(dot.type, kColumns));
        for (std::size_t rows : {1U, 2U, 8U}) {
            count_ggml(dot, weights.data(), rows);
            count_kernels(dot.type, weights.data(), rows);
        }
    }
}

}  // namespace
}  // namespace kvasir::portable::test

int main() {
    kvasir::portable::test::count_all();
    return 0;
}
