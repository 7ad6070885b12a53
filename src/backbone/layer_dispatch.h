// Computes what llama.cpp's scheduler gives the backend, a split of its graph: expert groups through the dispatcher,
// all else by ggml's CPU backend.
#pragma once

#include <ggml-backend.h>
#include <ggml.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "backbone/expert_group.h"
#include "backbone/ggml_backend.h"
#include "backbone/lazy_loading.h"
#include "expert/engine.h"

namespace kvasir {

// One per backend instance; used by one thread at a time.
class LayerDispatch {
  public:
    // Fails where ggml's CPU backend cannot be had.
    static Result<std::unique_ptr<LayerDispatch>> create(std::shared_ptr<Backend> backend);

    ggml_status compute(ggml_cgraph* graph);
    void set_threads(int threads);
    void set_abort_callback(ggml_abort_callback callback, void* data);

  private:
    // A group's pairs and rows, gathered before its output is written: ggml may give the output its inputs' memory.
    struct Gathered {
        std::vector<Pair> pairs;
        std::span<const float> rows;
        std::vector<float> copied_rows;
    };
    struct FreeBackend {
        void operator()(ggml_backend_t backend) const { ggml_backend_free(backend); }
    };

    explicit LayerDispatch(std::shared_ptr<Backend> backend) : backend_(std::move(backend)) {}
    ggml_status compute_groups(ggml_cgraph* graph, const BackendConfig& config);
    ggml_status compute_nodes(ggml_cgraph* graph, int begin, int end);
    Status compute_group(const ExpertGroup& group, std::uint32_t layer, ggml_cgraph* graph,
                         const BackendConfig& config);
    Status delegate(const ExpertGroup& group, std::uint32_t layer, const BackendConfig& config);
    ByteSpan encoded(std::span<const float> rows, const ExpertCall& call);
    Status gather(const ExpertGroup& group, bool copy_rows);
    Result<std::uint32_t> usable_layer(const ExpertGroup& group, const BackendConfig& config);
    Status check_weights(const ExpertGroup& group, std::uint32_t layer, const Manifest& manifest);
    Result<Engine*> engine(Arithmetic arithmetic);
    void prefetch(const ggml_cgraph* graph);
    void report_unmatched(const std::vector<UnmatchedOp>& unmatched);
    void warn_once(const std::string& subject, const std::string& reason);

    std::shared_ptr<Backend> backend_;
    std::unique_ptr<ggml_backend, FreeBackend> cpu_;
    int threads_ = GGML_DEFAULT_N_THREADS;
    ggml_abort_callback abort_callback_ = nullptr;
    void* abort_data_ = nullptr;
    // By threads too: llama.cpp has two counts, for prompts and decoding.
    std::map<std::pair<Arithmetic, int>, std::unique_ptr<Engine>> engines_;
    SlabPrefetcher prefetcher_;
    Gathered gathered_;
    ByteVector encoded_rows_;
    // Which (manifest, weights) were compared, and what came of it. Weights stay where they are as long as a context.
    std::map<std::pair<const Manifest*, const void*>, Status> checked_;
    std::set<std::string> warned_;
};

}  // namespace kvasir
