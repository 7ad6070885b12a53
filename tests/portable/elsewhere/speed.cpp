// portable_speed: how fast every set of kernels that this machine can run multiplies, on one thread. A line each:
//     TYPE IMPLEMENTATION ROWS NANOSECONDS
// for 256 weights times all rows: the median of many multiplications with a matrix that the caches hold.
#include <algorithm>
#include <chrono>
#include <cstdio>

#include "portable/kernels.h"
#include "portable/random.h"

namespace kvasir::portable::test {
namespace {

constexpr std::size_t kOutputs = 128;
constexpr std::size_t kColumns = 2048;
constexpr std::size_t kRounds = 41;

constexpr ggml_type kTypes[] = {GGML_TYPE_Q4_K,  GGML_TYPE_Q5_K,   GGML_TYPE_Q6_K, GGML_TYPE_Q2_K,
                                GGML_TYPE_Q3_K,  GGML_TYPE_IQ4_XS, GGML_TYPE_Q8_0, GGML_TYPE_Q4_0,
                                GGML_TYPE_MXFP4, GGML_TYPE_F16,    GGML_TYPE_BF16};

double nanoseconds(const Kernels& kernels, const Matrix& matrix, const PreparedRows& rows, float* out) {
    std::vector<double> rounds;
    for (std::size_t round = 0; round < kRounds; ++round) {
        const auto start = std::chrono::steady_clock::now();
        for (int i = 0; i < 4; ++i)
            kernels.multiply(matrix, rows, 0, kOutputs, out, kOutputs);
        const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - start;
        rounds.push_back(time.count() / 4);
    }
    std::nth_element(rounds.begin(), rounds.begin() + kRounds / 2, rounds.end());
    return rounds[kRounds / 2] / (kOutputs * kColumns / 256);
}

void measure(Random& random, ggml_type type, std::size_t count) {
    const ByteVector bytes = weights(random, type, kOutputs, kColumns, Fill::sane);
    const Matrix matrix{type, kOutputs, kColumns, bytes.data()};
    const Form form = traits(type).form;
    ByteVector activations(count * row_bytes(form, kColumns));
    for (std::size_t row = 0; row < count; ++row) {
        Kernels(Isa::plain)
            .quantise(form, normal_row(random, kColumns),
                      std::span(activations).subspan(row * row_bytes(form, kColumns), row_bytes(form, kColumns)));
    }
    const PreparedRows rows(form, kColumns, count, activations.data());
    std::vector<float> out(count * kOutputs);
    for (Isa isa : supported_isas()) {
        const std::string_view name = name_of(isa);
        std::printf("%s %.*s %zu %.2f\n", ggml_type_name(type), static_cast<int>(name.size()), name.data(), count,
                    nanoseconds(Kernels(isa), matrix, rows, out.data()));
    }
}

}  // namespace
}  // namespace kvasir::portable::test

int main() {
    using namespace kvasir::portable::test;
    Random random(1);
    for (ggml_type type : kTypes) {
        for (std::size_t rows : {1U, 8U})
            measure(random, type, rows);
    }
    return 0;
}
