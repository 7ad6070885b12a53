// The runs that are compared, side by side in one process: stock llama.cpp, the Kvasir backbone without workers, with
// workers, and, as yardsticks, with experts computed in f64 and stock llama.cpp with repacked weights. The stock model
// and context are made before the backend is registered and never see it, so no second process and no file of logits is
// needed: each batch is computed by all and compared at once.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>

#include "backbone/dispatcher.h"
#include "base/result.h"
#include "gguf/manifest.h"
#include "verify/comparison.h"
#include "verify/session.h"

namespace kvasir {

enum class Run : std::uint8_t { stock = 0, local = 1, swarm = 2, exact = 3, repacked = 4 };

struct SideBySideOptions {
    std::filesystem::path model;
    int threads = 1;
    std::uint32_t context = 512;
    std::uint32_t batch = 128;
    Arithmetic arithmetic = Arithmetic::portable;  // of the runs without and with workers
    bool local = true;                             // make the run without workers as well
    bool exact = false;                            // make the run in Arithmetic::exact as well
    bool repacked = false;                     // make stock's run with repacked weights (a copy of the model) as well
    std::shared_ptr<Dispatcher> dispatcher;    // null: no run with workers
    std::shared_ptr<const Manifest> manifest;  // what the workers serve; may be null
    // Called when the swarm run has computed a layer's experts, on the computing thread; for killing workers at a
    // chosen moment.
    std::function<void(std::uint32_t layer)> on_swarm_layer;
};

// Not thread-safe.
class SideBySide {
  public:
    // Registers the Kvasir backend, for good: once per process.
    static Result<std::unique_ptr<SideBySide>> create(const SideBySideOptions& options);
    ~SideBySide();

    bool has(Run run) const;
    // Appends `tokens` to the sequence of `run`.
    Status decode(Run run, std::span<const Token> tokens);
    // The last decode's: [tokens][vocabulary].
    std::span<const float> logits(Run run) const;
    const ExpertRecord& experts(Run run) const;
    // Time spent in decode().
    double seconds(Run run) const;
    // Compares the last decode of two runs, which began at `first_position`.
    void compare(Run reference, Run other, std::uint64_t first_position, Comparison& into) const;
    // Forgets all sequences.
    void clear();
    const LlamaModel& model() const;

  private:
    struct Implementation;
    explicit SideBySide(std::unique_ptr<Implementation> implementation);
    std::unique_ptr<Implementation> implementation_;
};

}  // namespace kvasir
