// The ggml backend: device KVASIR (type ACCEL) with a host buffer type of the same name. llama.cpp's own placement
// puts the routed experts of every layer there and nothing else; computing them is ours. Without a dispatcher they are
// computed by ggml's CPU backend as stock llama.cpp would (M0); with one, every expert group goes through it.
//
// Where llama.cpp looks for GPU devices first (-ngl with a GPU backend), say --override-tensor 'ffn_.*_exps=KVASIR'.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "backbone/dispatcher.h"
#include "base/result.h"
#include "expert/pair.h"
#include "gguf/manifest.h"

struct ggml_backend_reg;

namespace kvasir {

// Sees every expert group that is computed, whoever computed it; called on the decoding thread.
class ExpertObserver {
  public:
    virtual ~ExpertObserver() = default;
    // rows: [n][hidden]; pairs: token-major, one per (token, slot); out: [pairs][hidden], before the router's weights.
    virtual void observe(std::uint32_t layer, std::span<const float> rows, std::span<const Pair> pairs,
                         std::span<const float> out) = 0;
};

struct BackendConfig {
    std::shared_ptr<Dispatcher> dispatcher;    // null: M0
    std::shared_ptr<ExpertObserver> observer;  // may be null
    // The model that the dispatcher's workers serve. A layer whose tensors differ from it in shape, or in the bytes of
    // the expert that is checked at its first use, is computed here, with a warning. Null: unchecked (tests).
    std::shared_ptr<const Manifest> manifest;
    // In which all expert groups are computed, wherever. (What is in no group, or of a kind that `portable` does not
    // define, is left to ggml's CPU backend, and is never a worker's.)
    Arithmetic arithmetic = Arithmetic::portable;
};

// What became of one layer's pairs.
struct LayerCounters {
    std::uint64_t calls = 0;
    std::uint64_t pairs = 0;
    std::uint64_t pairs_local = 0;  // of them asked of the local replica
};

enum class BackendUse {
    changing,  // configure() may be called at any time: expert groups always come to the backend
    // Without dispatcher and observer (M0), in ggml-cpu arithmetic, the weights lie in the backend's buffers, but
    // ggml's CPU backend computes them in one piece with the rest of the graph, at exactly its own speed, as long as
    // they fit in memory. (Every split of a graph costs some 15 us.) configure() may then only let go of a dispatcher.
    fixed,
};

// What all backend instances (one per llama_context) of this process share. Thread-safe.
class Backend {
  public:
    explicit Backend(BackendConfig config, BackendUse use = BackendUse::changing);
    // Takes effect with the next group; waits for nothing.
    void configure(BackendConfig config);
    std::shared_ptr<const BackendConfig> config() const;

    void count(std::uint32_t layer, const LayerCounters& added);
    void count_undelegated(std::uint64_t operations);
    // By layer; counted with a dispatcher or an observer only.
    std::map<std::uint32_t, LayerCounters> counters() const;
    // Weights mapped into our buffers; decides how they are read.
    void add_mapped_bytes(std::uint64_t bytes) { mapped_bytes_ += bytes; }
    void remove_mapped_bytes(std::uint64_t bytes) { mapped_bytes_ -= bytes; }
    // The mapped weights take most of the memory that this process may use, or more than there is.
    bool memory_is_short() const { return mapped_bytes_ > memory_ / 4 * 3; }
    // Whether expert groups are to be computed by this backend.
    bool claims_groups() const { return claims_ || memory_is_short(); }

    // Expert MUL_MAT_IDs that were in no group, or in one that may not be delegated: left to ggml's CPU backend, with a
    // warning. Zero is the proof that every expert output went through dispatcher and observer.
    std::uint64_t undelegated() const;
    void reset_counters();

  private:
    mutable std::mutex mutex_;
    std::shared_ptr<const BackendConfig> config_;
    std::map<std::uint32_t, LayerCounters> counters_;
    std::uint64_t undelegated_ = 0;
    const std::uint64_t memory_;
    const bool claims_;
    std::atomic<std::uint64_t> mapped_bytes_ = 0;
};

struct DestroyRegistration {
    void operator()(ggml_backend_reg* registration) const;
};
using RegistrationPtr = std::unique_ptr<ggml_backend_reg, DestroyRegistration>;

// ggml's description of the backend, for ggml_backend_register() or a plugin's ggml_backend_init(). Those keep the
// pointer for good, so release() it to them.
RegistrationPtr make_backend_registration(std::shared_ptr<Backend> backend);

// Registers the backend with ggml in this process. Call once, before any model is loaded; a second call is
// ErrorKind::usage (use Backend::configure).
Result<std::shared_ptr<Backend>> register_backend(BackendConfig config, BackendUse use = BackendUse::changing);

}  // namespace kvasir
