#include <cstring>

#include "portable/elsewhere/checks.h"
#include "portable/hard_rows.h"
#include "portable/random.h"

namespace kvasir::portable::test {
namespace {

// FNV-1a.
class Digest {
  public:
    void add(ByteSpan bytes) {
        for (std::byte byte : bytes)
            value_ = (value_ ^ static_cast<std::uint64_t>(byte)) * 0x100000001B3ULL;
    }
    std::uint64_t value() const { return value_; }

  private:
    std::uint64_t value_ = 0xCBF29CE484222325ULL;
};

class Comparison {
  public:
    Comparison(const std::vector<Implementation>& implementations, Score& score)
        : implementations_(implementations), score_(score) {}

    // compute(implementation) gives a vector.
    template <class Compute>
    void compare(const std::string& what, Compute compute) {
        const auto expected = compute(implementations_.front());
        const ByteSpan expected_bytes = std::as_bytes(std::span(expected));
        digest_.add(expected_bytes);
        for (std::size_t i = 1; i < implementations_.size(); ++i) {
            const auto actual = compute(implementations_[i]);
            const bool same = actual.size() == expected.size() &&
                              std::memcmp(actual.data(), expected.data(), expected_bytes.size()) == 0;
            score_.count(same, implementations_[i].name() + ": random " + what);
        }
    }
    std::uint64_t digest() const { return digest_.value(); }

  private:
    const std::vector<Implementation>& implementations_;
    Score& score_;
    Digest digest_;
};

void compare_products(Comparison& comparison) {
    constexpr std::size_t kOutputs = 19;
    Random random(101);
    for (ggml_type type : all_types()) {
        const Form form = traits(type).form;
        for (std::size_t columns : lengths(type)) {
            for (Fill fill : {Fill::sane, Fill::anything, Fill::largest}) {
                for (std::size_t count : {1U, 3U, 9U}) {
                    const ByteVector bytes = weights(random, type, kOutputs, columns, fill);
                    const ByteVector rows = hard_rows(random, form, columns, count);
                    const Matrix matrix{type, kOutputs, columns, bytes.data()};
                    comparison.compare(
                        std::string("product, ") + ggml_type_name(type) + ", " + std::to_string(columns) + " columns",
                        [&](const Implementation& by) { return by.multiply(matrix, rows, count); });
                }
            }
        }
    }
}

void compare_rows(Comparison& comparison) {
    Random random(102);
    for (std::uint64_t kind = 0; kind < 64; ++kind) {
        const std::vector<float> row = hard_row(random, 512, kind);
        for (Form form : {Form::q8x256, Form::q8x32}) {
            comparison.compare("row, quantised", [&](const Implementation& by) { return by.quantise(form, row); });
        }
        const std::size_t columns = 1 + random.below(512);
        const auto part = std::span(row).first(columns);
        const ByteVector result = Implementation().to_result(part);
        comparison.compare("result", [&](const Implementation& by) { return by.to_result(part); });
        comparison.compare("result, read",
                           [&](const Implementation& by) { return by.from_result(result, columns).value(); });
        const float scale = random.normal();
        const std::vector<float> bias = normal_row(random, columns);
        comparison.compare("scale and bias", [&](const Implementation& by) {
            return by.scale_and_bias({part.begin(), part.end()}, &scale, bias);
        });
    }
}

void compare_functions(Comparison& comparison) {
    Random random(103);
    for (const auto& [activation, gated] : function_cases()) {
        for (int round = 0; round < 20; ++round) {
            const std::size_t count = 1 + random.below(300);
            std::vector<float> gate = normal_row(random, gated ? count : 0, round % 2 == 0 ? 4.0F : 60.0F);
            std::vector<float> up = normal_row(random, count, 4.0F);
            for (std::size_t i = 0; i < count; i += 3) {
                if (gated) gate[i] = random.any_float();
                up[(i * 7) % count] = random.any_float();
            }
            comparison.compare(
                "function " + std::to_string(static_cast<int>(activation.function)),
                [&, &activation = activation](const Implementation& by) { return by.activate(activation, gate, up); });
        }
    }
}

}  // namespace

std::uint64_t check_random(const std::vector<Implementation>& implementations, Score& score) {
    Comparison comparison(implementations, score);
    compare_products(comparison);
    compare_rows(comparison);
    compare_functions(comparison);
    return comparison.digest();
}

}  // namespace kvasir::portable::test
