// A real worker process holding every expert of a small synthetic model: what the benchmarks of a worker talk to.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "backbone/dispatcher.h"
#include "base/child_process.h"
#include "base/result.h"
#include "base/temp_directory.h"
#include "gguf/expert_map.h"
#include "net/identity.h"

namespace kvasir {

struct SyntheticShape {
    std::uint64_t hidden = 256;
    std::uint64_t ff = 256;
    std::uint32_t experts = 8;  // per layer
    std::uint32_t layers = 1;
};

// The process ends, and its files go, with this object.
struct SyntheticWorker {
    TempDirectory directory;
    ExpertMap map;
    Digest model_id{};
    std::shared_ptr<const Identity> backbone;  // null without TLS
    WorkerEndpoint endpoint;
    std::unique_ptr<ChildProcess> process;
};

// Makes the model (Q4_K), publishes and slices it, and starts `program worker` on it, ready to serve.
Result<SyntheticWorker> start_synthetic_worker(const std::filesystem::path& program, const SyntheticShape& shape,
                                               bool tls);

// A dispatcher to which that worker already serves.
Result<std::unique_ptr<Dispatcher>> connect_to(const SyntheticWorker& worker, Arithmetic arithmetic);

// One row asked of every expert of a layer. Not copyable: the call points into it.
class OneRowCall {
  public:
    OneRowCall(const ExpertLayer& layer, Arithmetic arithmetic);
    OneRowCall(const OneRowCall&) = delete;
    OneRowCall& operator=(const OneRowCall&) = delete;
    const ExpertCall& get() const { return call_; }

  private:
    ByteVector row_;
    std::vector<Pair> pairs_;
    std::vector<float> out_;
    ExpertCall call_;
};

// Nothing may be computed here: the benchmarks are of the worker.
class NoLocalExperts : public LocalExperts {
  public:
    Status compute(const ExpertCall& call, std::span<const Pair> pairs, std::span<float> out) override;
};

}  // namespace kvasir
