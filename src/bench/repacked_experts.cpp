#include "bench/repacked_experts.h"

#include <ggml-alloc.h>
#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <ggml.h>

#include <array>
#include <string_view>
#include <vector>

namespace kvasir {
namespace {

constexpr std::size_t kExperts = 8;
constexpr std::size_t kTensors = kExperts * 8 + 8;
constexpr std::array<Role, 3> kMatrices = {Role::gate, Role::up, Role::down};

struct FreeContext {
    void operator()(ggml_context* context) const { ggml_free(context); }
};
struct FreeBuffer {
    void operator()(ggml_backend_buffer* buffer) const { ggml_backend_buffer_free(buffer); }
};
struct FreeBackend {
    void operator()(ggml_backend* backend) const { ggml_backend_free(backend); }
};
struct FreeAllocator {
    void operator()(ggml_gallocr* allocator) const { ggml_gallocr_free(allocator); }
};

std::unique_ptr<ggml_context, FreeContext> make_context() {
    const std::size_t graph = ggml_graph_overhead_custom(kTensors, false);
    return std::unique_ptr<ggml_context, FreeContext>(
        ggml_init({kTensors * ggml_tensor_overhead() + graph, nullptr, true}));
}

// Null where ggml was built without it.
ggml_backend_buffer_type_t repacking_buffer() {
    ggml_backend_dev_t device = ggml_backend_reg_dev_get(ggml_backend_cpu_reg(), 0);
    auto extra = reinterpret_cast<ggml_backend_dev_get_extra_bufts_t>(
        ggml_backend_reg_get_proc_address(ggml_backend_cpu_reg(), "ggml_backend_dev_get_extra_bufts"));
    if (extra == nullptr) return nullptr;
    for (ggml_backend_buffer_type_t* type = extra(device); type != nullptr && *type != nullptr; ++type) {
        if (std::string_view(ggml_backend_buft_name(*type)) == "CPU_REPACK") return *type;
    }
    return nullptr;
}

// ggml tells of every tensor it repacks.
class QuietGgml {
  public:
    QuietGgml() {
        ggml_log_get(&log_, &data_);
        ggml_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
    }
    ~QuietGgml() { ggml_log_set(log_, data_); }
    QuietGgml(const QuietGgml&) = delete;
    QuietGgml& operator=(const QuietGgml&) = delete;

  private:
    ggml_log_callback log_ = nullptr;
    void* data_ = nullptr;
};

}  // namespace

struct RepackedExperts::Parts {
    std::unique_ptr<ggml_backend, FreeBackend> backend{ggml_backend_cpu_init()};
    std::unique_ptr<ggml_context, FreeContext> weights_context = make_context();
    std::unique_ptr<ggml_context, FreeContext> context = make_context();
    std::unique_ptr<ggml_backend_buffer, FreeBuffer> weights;
    std::unique_ptr<ggml_gallocr, FreeAllocator> allocator{ggml_gallocr_new(ggml_backend_cpu_buffer_type())};
    ggml_cgraph* graph = nullptr;
};

RepackedExperts::RepackedExperts(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
RepackedExperts::~RepackedExperts() = default;

Result<std::unique_ptr<RepackedExperts>> RepackedExperts::create(const LayerWeights& weights, std::uint32_t rows,
                                                                 int threads) {
    ggml_backend_buffer_type_t buffer = repacking_buffer();
    if (buffer == nullptr) return nullptr;
    const QuietGgml quiet;
    auto parts = std::make_unique<Parts>();
    ggml_backend_cpu_set_n_threads(parts->backend.get(), threads);
    ggml_context* context = parts->weights_context.get();
    std::vector<ggml_tensor*> matrices;  // [experts][gate, up, down]
    for (std::size_t i = 0; i < kExperts * kMatrices.size(); ++i) {
        const WeightView& view = *weights[kMatrices.at(i % kMatrices.size())];
        matrices.push_back(ggml_new_tensor_2d(context, static_cast<ggml_type>(view.type),
                                              static_cast<std::int64_t>(view.shape[0]),
                                              static_cast<std::int64_t>(view.shape[1])));
    }
    parts->weights.reset(ggml_backend_alloc_ctx_tensors_from_buft(context, buffer));
    if (!parts->weights) return fail(ErrorKind::unavailable, "no memory for repacked weights");
    for (std::size_t i = 0; i < matrices.size(); ++i) {
        if (matrices[i]->extra == nullptr) return nullptr;
        const WeightView& view = *weights[kMatrices.at(i % kMatrices.size())];
        const std::size_t bytes = ggml_nbytes(matrices[i]);
        ggml_backend_tensor_set(matrices[i], view.data + i / kMatrices.size() * bytes, 0, bytes);
    }

    context = parts->context.get();
    parts->graph = ggml_new_graph_custom(context, kTensors, false);
    ggml_tensor* input = ggml_new_tensor_2d(context, GGML_TYPE_F32, static_cast<std::int64_t>(weights.hidden), rows);
    ggml_set_input(input);
    for (std::size_t expert = 0; expert < kExperts; ++expert) {
        ggml_tensor* gate = ggml_mul_mat(context, matrices[3 * expert], input);
        ggml_tensor* up = ggml_mul_mat(context, matrices[3 * expert + 1], input);
        ggml_tensor* out = ggml_mul_mat(context, matrices[3 * expert + 2], ggml_swiglu_split(context, gate, up));
        ggml_set_output(out);
        ggml_build_forward_expand(parts->graph, out);
    }
    if (!ggml_gallocr_alloc_graph(parts->allocator.get(), parts->graph)) {
        return fail(ErrorKind::unavailable, "no memory for {} rows", rows);
    }
    const std::vector<float> values(rows * weights.hidden, 0.5F);
    ggml_backend_tensor_set(input, values.data(), 0, values.size() * sizeof(float));
    return std::unique_ptr<RepackedExperts>(new RepackedExperts(std::move(parts)));
}

Status RepackedExperts::compute() {
    const ggml_status status = ggml_backend_graph_compute(parts_->backend.get(), parts_->graph);
    if (status == GGML_STATUS_SUCCESS) return {};
    return fail(ErrorKind::internal, "ggml could not multiply repacked weights: {}", ggml_status_to_string(status));
}

}  // namespace kvasir
