// A tiny published model with random weights, slices of it, and the right answers.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <optional>
#include <random>
#include <string_view>
#include <vector>

#include "base/temp_directory.h"
#include "expert/engine.h"
#include "gguf/slice.h"
#include "wire/messages.h"
#include "worker/batcher.h"
#include "worker/piece_store.h"

namespace kvasir::worker_test {

inline constexpr std::uint32_t kHidden = 64;
inline constexpr std::uint32_t kFf = 32;
inline constexpr std::uint32_t kExperts = 8;
inline constexpr std::uint64_t kEpoch = 77;
// The longest an expected thing may take on a loaded machine.
inline constexpr std::chrono::seconds kLongWait{60};

// What one request asks for; owns what a Compute points to.
struct Question {
    std::uint32_t layer = 0;
    Arithmetic arithmetic = Arithmetic::ggml_cpu;
    RowEncoding encoding = RowEncoding::f32;
    ByteVector rows;
    std::vector<Pair> pairs;  // global expert ids
    Recipe recipe{.activation = Activation::silu};
    std::uint64_t epoch = kEpoch;
    std::uint32_t hidden = kHidden;

    Compute compute() const;
};

// Layers 0, 2 and 4 hold 8 experts each, of F32 weights; gate and up of layer 4 are Q8_0.
class WorkerTest : public testing::Test {
  protected:
    WorkerTest();

    std::filesystem::path path(std::string_view name) const { return directory_.path() / name; }
    // Writes a model whose weights depend on `seed`, with its manifest unless `published` is false.
    std::filesystem::path write_model(std::string_view name, std::uint32_t seed, bool published = true) const;
    std::filesystem::path write_slice_of(const std::filesystem::path& model, std::string_view name,
                                         std::vector<Piece> pieces) const;
    PieceStore open_store(std::vector<std::filesystem::path> slices) const;
    // `rows` random rows, each with `slots` distinct experts from [first, first + count).
    Question ask(std::uint32_t layer, std::uint32_t rows, std::uint32_t slots, std::uint32_t first = 0,
                 std::uint32_t count = kExperts);
    // The same in portable/1: of layers 0 and 2 rows travel as f32, of layer 4 as q8x32.
    static Question portable(Question question);
    // Result rows, computed from the whole model by an engine of our own.
    ByteVector answer(const Question& question) const;
    JobPtr make_job(const PieceStore& store, const Question& question,
                    std::function<void(Result<ResultBuffer>)> done) const;

  private:
    TempDirectory directory_;
    std::mt19937 random_{5};

  protected:
    const std::filesystem::path model_;  // seed 1
};

testing::AssertionResult same_bits(ByteSpan left, ByteSpan right);

}  // namespace kvasir::worker_test
