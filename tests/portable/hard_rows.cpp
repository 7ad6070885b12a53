#include "portable/hard_rows.h"

#include <bit>
#include <cmath>
#include <limits>

#include "portable/reference.h"

namespace kvasir::portable::test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// What a quantiser gives, or now and then anything at all.
ByteVector hard_bytes(Random& random, Form form, std::size_t columns, std::uint64_t kind) {
    ByteVector bytes(row_bytes(form, columns));
    if (kind % 10 < 8) {
        reference::quantise(form, hard_row(random, columns, kind), bytes);
    } else {
        for (std::byte& byte : bytes)
            byte = kind % 10 == 8 ? static_cast<std::byte>(random.bits() & 255)
                                  : (random.below(2) != 0 ? std::byte{0x80} : std::byte{0x7F});
    }
    return bytes;
}

}  // namespace

std::vector<float> hard_row(Random& random, std::size_t columns, std::uint64_t kind) {
    switch (kind % 8) {
        case 0:
            return normal_row(random, columns);
        case 1:
            return normal_row(random, columns, 1e-39F);  // denormals
        case 2:
            return normal_row(random, columns, 1e37F);
        case 3:
            return std::vector<float>(columns, 0.0F);
        case 4: {  // any bits but NaN and infinities
            std::vector<float> row(columns);
            for (float& x : row) {
                do {
                    x = random.any_float();
                } while (!std::isfinite(x));
            }
            return row;
        }
        case 5: {  // one block is not finite
            std::vector<float> row = normal_row(random, columns);
            row[random.below(columns)] = random.below(2) != 0 ? kInfinity : std::bit_cast<float>(0xFFC00001U);
            return row;
        }
        case 6: {  // outliers of both signs, as often equal
            std::vector<float> row = normal_row(random, columns, 0.01F);
            for (std::size_t i = 0; i < columns; i += 37)
                row[i] = random.below(2) != 0 ? 100.0F : -100.0F;
            return row;
        }
        default: {  // ties when rounded to 127 steps
            std::vector<float> row(columns);
            for (std::size_t i = 0; i < columns; ++i)
                row[i] = i % 32 == 0 ? 127.0F : static_cast<float>(random.below(508)) * 0.25F - 63.5F;
            return row;
        }
    }
}

std::vector<FunctionCase> function_cases() {
    std::vector<FunctionCase> cases;
    for (int number = 0; number <= 6; ++number) {
        const Activation activation{static_cast<Function>(number), 1.702F, 3.5F};
        for (bool gated : {false, true}) {
            const bool only_gated = activation.function >= Function::swiglu_oai;
            const bool only_ungated = activation.function == Function::relu_squared;
            if (gated ? !only_ungated : !only_gated) cases.push_back({activation, gated});
        }
    }
    return cases;
}

std::vector<std::size_t> lengths(ggml_type type) {
    switch (traits(type).form) {
        case Form::q8x256:
            return {256, 768, 2048, 2304, 3072};
        case Form::q8x32:
            return traits(type).stored_columns == 64 ? std::vector<std::size_t>{64, 704, 1408, 2880}
                                                     : std::vector<std::size_t>{32, 288, 1408, 2880};
        case Form::f32:
            break;
    }
    return {1, 7, 8, 100, 1408, 2881};
}

ByteVector hard_rows(Random& random, Form form, std::size_t columns, std::size_t count) {
    ByteVector rows;
    for (std::size_t row = 0; row < count; ++row) {
        const ByteVector bytes = hard_bytes(random, form, columns, random.bits() >> 8);
        rows.insert(rows.end(), bytes.begin(), bytes.end());
    }
    return rows;
}

}  // namespace kvasir::portable::test
