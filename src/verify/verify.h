// The proof that nothing changes: a model is run by stock llama.cpp, by the Kvasir backbone without workers, and by the
// backbone with workers, side by side on the same text, and every logit and every expert output row is compared, bit
// for bit. The runs differ in nothing else: same file, same batches, same threads, same KV cache, no repacking.
//
// In `ggml-cpu` all of them must be equal. In `portable` the backbone must be equal to itself with workers; to stock it
// is compared by the distance of both to a run whose experts are computed in f64, and by stock's own distance to itself
// with repacked weights.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backbone/dispatcher.h"
#include "base/result.h"
#include "gguf/manifest.h"
#include "verify/comparison.h"

namespace kvasir {

struct VerifyOptions {
    std::filesystem::path model;
    // Empty: `tales-heldout.txt` beside the model, else token numbers from a fixed pseudo-random sequence.
    std::filesystem::path text;
    std::uint32_t tokens = 1024;         // computed in batches
    std::uint32_t single_tokens = 1024;  // of these, computed once more token by token
    std::uint32_t batch = 128;           // made smaller where expert outputs of a batch would not fit 256 MiB
    int threads = 1;
    Arithmetic arithmetic = Arithmetic::portable;
    // Of those in batches, computed with exact experts and by stock with repacked weights too, unless in ggml-cpu;
    // slow.
    std::uint32_t exact_tokens = 512;
    // The largest model whose weights are repacked, which takes as much memory again.
    std::uint64_t repack_limit = std::uint64_t{4} << 30;
    bool quiet = false;              // no progress line
    std::function<void()> on_begin;  // called when all is loaded and comparing begins; may be empty
    // The swarm; null: stock and backbone alone are compared. Its workers must be serving already.
    std::shared_ptr<Dispatcher> dispatcher;
    std::shared_ptr<const Manifest> manifest;  // what they serve; null: unchecked
};

// The comparisons of one way of computing the text.
struct VerifyPass {
    std::string name;  // "in batches of 128", "token by token"
    Comparison local_to_stock;
    std::optional<Comparison> swarm_to_stock;
    std::optional<Comparison> swarm_to_local;
    std::optional<Comparison> stock_to_exact;
    std::optional<Comparison> local_to_exact;
    std::optional<Comparison> repacked_to_stock;
};

// How likely a run holds a text.
struct Likelihood {
    double nll = 0;  // negative log-likelihood, nats, summed over …
    std::uint64_t tokens = 0;

    double perplexity() const;
};

struct VerifyReport {
    std::string architecture;
    std::string model_name;
    std::string text;  // what the text was
    std::uint32_t expert_layers = 0;
    std::uint32_t experts_used = 0;
    std::uint64_t tokens = 0;
    std::uint32_t window = 0;  // positions until the sequence begins anew
    int threads = 1;
    std::vector<VerifyPass> passes;
    std::uint64_t pairs = 0;          // (row, expert) pairs of the run with workers
    std::optional<SwarmStats> swarm;  // of this verification alone
    Arithmetic arithmetic = Arithmetic::portable;
    Likelihood stock;  // of the positions that the exact run has computed as well
    Likelihood local;
    Likelihood exact;
    Likelihood repacked;
    double seconds_stock = 0;  // computing, all passes together
    double seconds_local = 0;
    double seconds_swarm = 0;

    // Not a bit of difference in anything that must be equal.
    bool identical() const { return logits_identical() && expert_outputs_identical(); }
    bool logits_identical() const;
    bool expert_outputs_identical() const;
};

// Registers the Kvasir backend with the process, for good: call it once per process, and load no model by other means
// before that is to be stock. Errors: a dense model (unsupported), a vacuous comparison: workers were given and not a
// single pair was computed by them (unavailable), what llama.cpp cannot load.
Result<VerifyReport> verify(const VerifyOptions& options);

// For people, and for scripts (one JSON object).
std::string table(const VerifyReport& report);
std::string to_json(const VerifyReport& report);

}  // namespace kvasir
