#include "backbone/layer_dispatch.h"

#include <fmt/format.h>
#include <ggml-cpu.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "backbone/local_replica.h"
#include "base/sha256.h"

// ggml-impl.h defines ggml_cgraph, and views of it.
#include "ggml-impl.h"

namespace kvasir {
namespace {

std::size_t bytes_of(std::span<const float> rows) {
    return rows.size_bytes();
}

bool overlap(const void* a, std::size_t a_bytes, const void* b, std::size_t b_bytes) {
    auto first = reinterpret_cast<std::uintptr_t>(a);
    auto second = reinterpret_cast<std::uintptr_t>(b);
    return first < second + b_bytes && second < first + a_bytes;
}

bool is_computed_in(const ggml_cgraph* graph, const ggml_tensor* tensor) {
    const ggml_tensor* root = tensor->view_src != nullptr ? tensor->view_src : tensor;
    return std::find(graph->nodes, graph->nodes + graph->n_nodes, root) != graph->nodes + graph->n_nodes;
}

std::int32_t id_at(const ggml_tensor* ids, std::int64_t slot, std::int64_t token) {
    const char* at = static_cast<const char*>(ids->data) + slot * ids->nb[0] + token * ids->nb[1];
    std::int32_t id = 0;
    std::memcpy(&id, at, sizeof(id));
    return id;
}

// The experts that `ids` selects, sorted, once each; ids that don't exist are left out.
std::vector<std::uint32_t> selected_experts(const ggml_tensor* ids, std::int64_t experts) {
    std::vector<bool> selected(static_cast<std::size_t>(experts));
    for (std::int64_t token = 0; token < ids->ne[1]; ++token) {
        for (std::int64_t slot = 0; slot < ids->ne[0]; ++slot) {
            std::int32_t id = id_at(ids, slot, token);
            if (id >= 0 && id < experts) selected[static_cast<std::size_t>(id)] = true;
        }
    }
    std::vector<std::uint32_t> list;
    for (std::size_t i = 0; i < selected.size(); ++i) {
        if (selected[i]) list.push_back(static_cast<std::uint32_t>(i));
    }
    return list;
}

std::span<float> output_of(const ExpertGroup& group) {
    return {static_cast<float*>(group.out->data), static_cast<std::size_t>(ggml_nelements(group.out))};
}

// "blk.3" of "blk.3.ffn_up_exps.weight": what one warning stands for.
std::string subject_of(const ggml_tensor* node) {
    std::string name = node->src[0]->name;
    std::size_t dot = name.find('.', name.find('.') + 1);
    return dot == std::string::npos ? name : name.substr(0, dot);
}

void log_error(const Error& error) {
    fmt::print(stderr, "kvasir: error: {}\n", error.message);
}

}  // namespace

Result<std::unique_ptr<LayerDispatch>> LayerDispatch::create(std::shared_ptr<Backend> backend) {
    std::unique_ptr<LayerDispatch> dispatch(new LayerDispatch(std::move(backend)));
    dispatch->cpu_.reset(ggml_backend_cpu_init());
    if (!dispatch->cpu_) return fail(ErrorKind::internal, "ggml's CPU backend could not be started");
    return dispatch;
}

void LayerDispatch::set_threads(int threads) {
    threads_ = std::max(1, threads);
    ggml_backend_cpu_set_n_threads(cpu_.get(), threads_);
}

void LayerDispatch::set_abort_callback(ggml_abort_callback callback, void* data) {
    abort_callback_ = callback;
    abort_data_ = data;
    ggml_backend_cpu_set_abort_callback(cpu_.get(), callback, data);
}

ggml_status LayerDispatch::compute(ggml_cgraph* graph) {
    std::shared_ptr<const BackendConfig> config = backend_->config();
    if (config->dispatcher || config->observer || config->arithmetic != Arithmetic::ggml_cpu) {
        return compute_groups(graph, *config);
    }
    if (prefetcher_.wanted()) prefetch(graph);
    return ggml_backend_graph_compute(cpu_.get(), graph);
}

ggml_status LayerDispatch::compute_nodes(ggml_cgraph* graph, int begin, int end) {
    if (begin >= end) return GGML_STATUS_SUCCESS;
    ggml_cgraph part = ggml_graph_view(graph, begin, end);
    return ggml_backend_graph_compute(cpu_.get(), &part);
}

ggml_status LayerDispatch::compute_groups(ggml_cgraph* graph, const BackendConfig& config) {
    GroupScan scan = find_expert_groups(*graph);
    report_unmatched(scan.unmatched);
    int next = 0;
    for (const ExpertGroup& group : scan.groups) {
        Result<std::uint32_t> layer = usable_layer(group, config);
        if (!layer) {
            warn_once(group[Role::down]->name, layer.error().message);
            backend_->count_undelegated(1);
            continue;  // computed with the nodes before the next group
        }
        if (abort_callback_ != nullptr && abort_callback_(abort_data_)) return GGML_STATUS_ABORTED;
        ggml_status status = compute_nodes(graph, next, group.first);
        if (status != GGML_STATUS_SUCCESS) return status;
        if (Status done = compute_group(group, *layer, graph, config); !done) {
            log_error(done.error().within(fmt::format("layer {}", *layer)));
            return GGML_STATUS_FAILED;
        }
        next = group.last + 1;
    }
    return compute_nodes(graph, next, graph->n_nodes);
}

Status LayerDispatch::compute_group(const ExpertGroup& group, std::uint32_t layer, ggml_cgraph* graph,
                                    const BackendConfig& config) {
    bool by_cpu = !config.dispatcher && config.arithmetic == Arithmetic::ggml_cpu;
    if (Status gathered = gather(group, by_cpu); !gathered) return gathered;
    if (by_cpu) {
        ggml_status status = compute_nodes(graph, group.first, group.last + 1);
        if (status != GGML_STATUS_SUCCESS) {
            return fail(ErrorKind::internal, "ggml could not compute it: {}", ggml_status_to_string(status));
        }
        std::uint64_t pairs = gathered_.pairs.size();
        backend_->count(layer, {.calls = 1, .pairs = pairs, .pairs_local = pairs});
    } else if (Status delegated = delegate(group, layer, config); !delegated) {
        return delegated;
    }
    if (config.observer) config.observer->observe(layer, gathered_.rows, gathered_.pairs, output_of(group));
    return {};
}

Status LayerDispatch::delegate(const ExpertGroup& group, std::uint32_t layer, const BackendConfig& config) {
    Result<Engine*> local_engine = engine(config.arithmetic);
    if (!local_engine) return fail(local_engine.error());
    LayerWeights weights = view_weights(group);
    LocalReplica local(weights, config.arithmetic, **local_engine, prefetcher_);
    ExpertCall call{.layer = layer,
                    .hidden = static_cast<std::uint32_t>(group.hidden()),
                    .recipe = group.recipe,
                    .row_encoding = input_encoding(config.arithmetic, weights),
                    .rows = {},
                    .pairs = gathered_.pairs,
                    .out = output_of(group)};
    call.rows = encoded(gathered_.rows, call);
    Status computed =
        config.dispatcher ? config.dispatcher->compute(call, local) : local.compute(call, call.pairs, call.out);
    backend_->count(layer, {.calls = 1, .pairs = gathered_.pairs.size(), .pairs_local = local.pairs()});
    return computed;
}

// The rows as they travel: to workers and to the local engine alike.
ByteSpan LayerDispatch::encoded(std::span<const float> rows, const ExpertCall& call) {
    if (call.row_encoding == RowEncoding::f32) return std::as_bytes(rows);
    encoded_rows_.resize(rows.size() / call.hidden * call.row_size());
    encode_rows(call.row_encoding, call.hidden, rows, encoded_rows_);
    return encoded_rows_;
}

Status LayerDispatch::gather(const ExpertGroup& group, bool copy_rows) {
    std::uint32_t experts = group.experts();
    gathered_.pairs.clear();
    for (std::uint32_t token = 0; token < group.tokens(); ++token) {
        for (std::uint32_t slot = 0; slot < group.slots(); ++slot) {
            std::int32_t id = id_at(group.ids, slot, token);
            if (id < 0 || static_cast<std::uint32_t>(id) >= experts) {
                return fail(ErrorKind::invalid,
                            "expert id {} of token {}, slot {} ('{}'): the layer has experts 0 to {}. This is a bug in "
                            "what computed the ids; nothing was computed with it",
                            id, token, slot, group.ids->name, experts - 1);
            }
            gathered_.pairs.push_back({group.row_of(token, slot), static_cast<std::uint32_t>(id)});
        }
    }
    const ggml_tensor* rows = group.rows;
    std::size_t count = static_cast<std::size_t>(rows->ne[1] * rows->ne[2]);
    std::size_t width = static_cast<std::size_t>(rows->ne[0]);
    std::span<const float> in_place(static_cast<const float*>(rows->data), count * width);
    std::span<float> out = output_of(group);
    if (!copy_rows && ggml_is_contiguous(rows) &&
        !overlap(in_place.data(), bytes_of(in_place), out.data(), bytes_of(out))) {
        gathered_.rows = in_place;
        return {};
    }
    gathered_.copied_rows.resize(count * width);
    for (std::size_t i = 0; i < count; ++i) {
        std::size_t token = i / static_cast<std::size_t>(rows->ne[1]);
        std::size_t slot = i % static_cast<std::size_t>(rows->ne[1]);
        const char* row = static_cast<const char*>(rows->data) + slot * rows->nb[1] + token * rows->nb[2];
        std::memcpy(gathered_.copied_rows.data() + i * width, row, width * sizeof(float));
    }
    gathered_.rows = gathered_.copied_rows;
    return {};
}

// The group's layer, if the dispatcher may have it.
Result<std::uint32_t> LayerDispatch::usable_layer(const ExpertGroup& group, const BackendConfig& config) {
    for (const ggml_tensor* weight : group.weights) {
        if (weight != nullptr && !ggml_backend_buffer_is_host(weight->buffer)) {
            return fail(ErrorKind::unsupported, "'{}' is not in host memory", weight->name);
        }
    }
    Result<std::uint32_t> layer = layer_number(group);
    if (!layer) return layer;
    if (config.arithmetic != Arithmetic::ggml_cpu) {
        Status defined = check_recipe(config.arithmetic, group.recipe, view_weights(group));
        if (!defined) return fail(defined.error());
    }
    if (!config.dispatcher || !config.manifest) return layer;
    auto [entry, added] = checked_.try_emplace({config.manifest.get(), group[Role::down]->data});
    if (added) entry->second = check_weights(group, *layer, *config.manifest);
    if (!entry->second) return fail(entry->second.error());
    return layer;
}

// Its tensors are the manifest's, in shape and, for one slab that stands for the rest, in bytes.
Status LayerDispatch::check_weights(const ExpertGroup& group, std::uint32_t layer, const Manifest& manifest) {
    const ManifestLayer* listed = manifest.find(layer);
    if (listed == nullptr) return fail(ErrorKind::invalid, "the manifest has no layer {}", layer);
    for (std::size_t i = 0; i < kRoleCount; ++i) {
        const ggml_tensor* weight = group.weights[i];
        const ManifestTensor* tensor = listed->find(static_cast<Role>(i));
        bool same = (weight == nullptr) == (tensor == nullptr);
        if (same && weight != nullptr) {
            same = tensor->type == static_cast<std::uint32_t>(weight->type) &&
                   std::equal(tensor->shape.begin(), tensor->shape.end(), weight->ne,
                              [](std::uint64_t a, std::int64_t b) { return a == static_cast<std::uint64_t>(b); });
        }
        if (!same) {
            return fail(ErrorKind::invalid, "the model's {} tensor of layer {} is not the manifest's",
                        role_name(static_cast<Role>(i)), layer);
        }
    }
    const ManifestTensor* down = listed->find(Role::down);
    auto slab_bytes = static_cast<std::size_t>(group[Role::down]->nb[2]);
    if (slab_bytes != down->slab_bytes || down->slabs.empty()) {
        return fail(ErrorKind::invalid, "the down slabs of layer {} differ in size from the manifest's", layer);
    }
    ByteSpan slab(static_cast<const std::byte*>(group[Role::down]->data), slab_bytes);
    if (sha256(slab) != down->slabs.front()) {
        return fail(ErrorKind::invalid, "the bytes of layer {}, expert 0 are not the manifest's", layer);
    }
    return {};
}

Result<Engine*> LayerDispatch::engine(Arithmetic arithmetic) {
    std::unique_ptr<Engine>& engine = engines_[{arithmetic, threads_}];
    if (!engine) {
        Result<std::unique_ptr<Engine>> created = Engine::create(arithmetic, threads_);
        if (!created) return fail(created.error());
        engine = std::move(*created);
    }
    return engine.get();
}

void LayerDispatch::prefetch(const ggml_cgraph* graph) {
    const ggml_tensor* last_ids = nullptr;
    std::vector<std::uint32_t> experts;
    for (int i = 0; i < graph->n_nodes; ++i) {
        const ggml_tensor* node = graph->nodes[i];
        if (node->op != GGML_OP_MUL_MAT_ID || is_computed_in(graph, node->src[2])) continue;
        const ggml_tensor* weight = node->src[0];
        if (node->src[2] != last_ids) {
            last_ids = node->src[2];
            experts = selected_experts(last_ids, weight->ne[2]);
        }
        if (!experts.empty() && experts.back() >= weight->ne[2]) continue;
        SlabPrefetcher::prefetch(static_cast<const std::byte*>(weight->data), weight->nb[2], experts);
    }
}

void LayerDispatch::report_unmatched(const std::vector<UnmatchedOp>& unmatched) {
    if (!unmatched.empty()) backend_->count_undelegated(unmatched.size());
    for (const UnmatchedOp& op : unmatched) {
        std::string subject = subject_of(op.node);
        warn_once(subject, fmt::format("'{}': {}", op.node->src[0]->name, op.reason));
    }
}

void LayerDispatch::warn_once(const std::string& subject, const std::string& reason) {
    if (!warned_.insert(subject).second) return;
    fmt::print(stderr, "kvasir: warning: {}: its experts are computed here, not by workers: {}\n", subject, reason);
}

}  // namespace kvasir
