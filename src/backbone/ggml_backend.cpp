#include "backbone/ggml_backend.h"

#include <fmt/format.h>
#include <ggml-backend.h>
#include <ggml-cpu.h>

#include <cstdio>
#include <cstring>

#include "backbone/layer_dispatch.h"
#include "backbone/lazy_loading.h"
#include "backbone/memory_budget.h"
#include "backbone/supported_ops.h"

// ggml's internal backend interface; GGML_BACKEND_API_VERSION below tells ggml which one this was built for.
#include "ggml-backend-impl.h"

namespace kvasir {
namespace {

constexpr const char* kName = "KVASIR";

// The three structures that ggml wants to point at, and the state behind them.
struct Registration {
    std::shared_ptr<Backend> backend;
    ggml_backend_reg reg{};
    ggml_backend_device device{};
    ggml_backend_buffer_type buffer_type{};
};

Registration& registration_of(ggml_backend_dev_t device) {
    return *static_cast<Registration*>(device->context);
}

LayerDispatch& dispatch_of(ggml_backend_t backend) {
    return *static_cast<LayerDispatch*>(backend->context);
}

// Buffers: ggml's CPU buffers under our type.

ggml_backend_buffer_t adopt(ggml_backend_buffer_t buffer, ggml_backend_buffer_type_t type) {
    if (buffer != nullptr) buffer->buft = type;
    return buffer;
}

ggml_backend_buffer_t allocate_buffer(ggml_backend_buffer_type_t type, std::size_t size) {
    return adopt(ggml_backend_buft_alloc_buffer(ggml_backend_cpu_buffer_type(), size), type);
}

// Called for each tensor that llama.cpp places in its memory map, once all of it is mapped: the moment when the exact
// range of every tensor is known.
ggml_status init_mapped_tensor(ggml_backend_buffer_t buffer, ggml_tensor* tensor) {
    const Backend& backend = *registration_of(ggml_backend_buffer_get_type(buffer)->device).backend;
    if (tensor->view_src == nullptr && backend.memory_is_short()) advise_experts(tensor->data, ggml_nbytes(tensor));
    return GGML_STATUS_SUCCESS;
}

// The memory itself is llama.cpp's to unmap.
void free_mapped_buffer(ggml_backend_buffer_t buffer) {
    registration_of(ggml_backend_buffer_get_type(buffer)->device).backend->remove_mapped_bytes(buffer->size);
}

ggml_backend_buffer_t buffer_from_host(ggml_backend_dev_t device, void* data, std::size_t size, std::size_t /*max*/) {
    Registration& registration = registration_of(device);
    ggml_backend_buffer_t buffer = adopt(ggml_backend_cpu_buffer_from_ptr(data, size), &registration.buffer_type);
    if (buffer == nullptr) return nullptr;
    buffer->iface.init_tensor = init_mapped_tensor;
    buffer->iface.free_buffer = free_mapped_buffer;
    registration.backend->add_mapped_bytes(size);
    return buffer;
}

ggml_backend_buffer_type_i buffer_type_interface() {
    ggml_backend_buffer_type_i interface {};
    interface.get_name = [](ggml_backend_buffer_type_t) { return kName; };
    interface.alloc_buffer = allocate_buffer;
    interface.get_alignment = [](ggml_backend_buffer_type_t) {
        return ggml_backend_buft_get_alignment(ggml_backend_cpu_buffer_type());
    };
    interface.is_host = [](ggml_backend_buffer_type_t) { return true; };
    return interface;
}

// Backend instances: one per llama_context.

ggml_guid_t backend_guid() {
    static ggml_guid guid = {0x6b, 0x76, 0x61, 0x73, 0x69, 0x72, 0x2d, 0x65,
                             0x78, 0x70, 0x65, 0x72, 0x74, 0x73, 0x2d, 0x31};
    return &guid;
}

ggml_backend_i backend_interface() {
    ggml_backend_i interface {};
    interface.get_name = [](ggml_backend_t) { return kName; };
    interface.free = [](ggml_backend_t backend) {
        delete &dispatch_of(backend);
        delete backend;
    };
    interface.graph_compute = [](ggml_backend_t backend, ggml_cgraph* graph) {
        return dispatch_of(backend).compute(graph);
    };
    return interface;
}

ggml_backend_t init_backend(ggml_backend_dev_t device, const char* /*parameters*/) {
    Result<std::unique_ptr<LayerDispatch>> dispatch = LayerDispatch::create(registration_of(device).backend);
    if (!dispatch) {
        fmt::print(stderr, "kvasir: error: {}\n", dispatch.error().message);
        return nullptr;
    }
    return new ggml_backend{backend_guid(), backend_interface(), device, dispatch->release()};
}

void set_threads(ggml_backend_t backend, int threads) {
    dispatch_of(backend).set_threads(threads);
}

void set_abort_callback(ggml_backend_t backend, ggml_abort_callback callback, void* data) {
    dispatch_of(backend).set_abort_callback(callback, data);
}

void* proc_address(ggml_backend_reg_t /*reg*/, const char* name) {
    if (std::strcmp(name, "ggml_backend_set_n_threads") == 0) return reinterpret_cast<void*>(set_threads);
    if (std::strcmp(name, "ggml_backend_set_abort_callback") == 0) return reinterpret_cast<void*>(set_abort_callback);
    return nullptr;
}

// The device.

void device_properties(ggml_backend_dev_t device, ggml_backend_dev_props* props) {
    *props = {};
    props->name = kName;
    props->description = device->iface.get_description(device);
    props->type = GGML_BACKEND_DEVICE_TYPE_ACCEL;
    props->caps = {
        .async = false, .host_buffer = false, .buffer_from_host_ptr = true, .events = false, .mmap_support = true};
}

ggml_backend_device_i device_interface() {
    ggml_backend_device_i interface {};
    interface.get_name = [](ggml_backend_dev_t) { return kName; };
    interface.get_description = [](ggml_backend_dev_t) { return "Kvasir: routed experts, here and on workers"; };
    interface.get_memory = [](ggml_backend_dev_t, std::size_t* free, std::size_t* total) { *free = *total = 0; };
    interface.get_type = [](ggml_backend_dev_t) { return GGML_BACKEND_DEVICE_TYPE_ACCEL; };
    interface.get_props = device_properties;
    interface.init_backend = init_backend;
    interface.get_buffer_type = [](ggml_backend_dev_t device) { return &registration_of(device).buffer_type; };
    interface.buffer_from_host_ptr = buffer_from_host;
    interface.supports_op = [](ggml_backend_dev_t device, const ggml_tensor* op) {
        Registration& registration = registration_of(device);
        return is_expert_op(op, &registration.buffer_type) &&
               (registration.backend->claims_groups() || asks_for_placement(op, &registration.buffer_type));
    };
    interface.supports_buft = [](ggml_backend_dev_t, ggml_backend_buffer_type_t type) {
        return ggml_backend_buft_is_host(type);
    };
    return interface;
}

ggml_backend_reg_i registration_interface() {
    ggml_backend_reg_i interface {};
    interface.get_name = [](ggml_backend_reg_t) { return kName; };
    interface.get_device_count = [](ggml_backend_reg_t) { return std::size_t{1}; };
    interface.get_device = [](ggml_backend_reg_t reg, std::size_t) {
        return &static_cast<Registration*>(reg->context)->device;
    };
    interface.get_proc_address = proc_address;
    return interface;
}

}  // namespace

Backend::Backend(BackendConfig config, BackendUse use)
    : config_(std::make_shared<const BackendConfig>(std::move(config))),
      memory_(memory_limit()),
      claims_(use == BackendUse::changing || config_->dispatcher || config_->observer ||
              config_->arithmetic != Arithmetic::ggml_cpu) {}

void Backend::configure(BackendConfig config) {
    auto next = std::make_shared<const BackendConfig>(std::move(config));
    std::scoped_lock lock(mutex_);
    config_.swap(next);  // the old one goes with `next`, after the lock
}

std::shared_ptr<const BackendConfig> Backend::config() const {
    std::scoped_lock lock(mutex_);
    return config_;
}

void Backend::count(std::uint32_t layer, const LayerCounters& added) {
    std::scoped_lock lock(mutex_);
    LayerCounters& sum = counters_[layer];
    sum.calls += added.calls;
    sum.pairs += added.pairs;
    sum.pairs_local += added.pairs_local;
}

void Backend::count_undelegated(std::uint64_t operations) {
    std::scoped_lock lock(mutex_);
    undelegated_ += operations;
}

std::uint64_t Backend::undelegated() const {
    std::scoped_lock lock(mutex_);
    return undelegated_;
}

std::map<std::uint32_t, LayerCounters> Backend::counters() const {
    std::scoped_lock lock(mutex_);
    return counters_;
}

void Backend::reset_counters() {
    std::scoped_lock lock(mutex_);
    counters_.clear();
    undelegated_ = 0;
}

void DestroyRegistration::operator()(ggml_backend_reg* registration) const {
    delete static_cast<Registration*>(registration->context);
}

RegistrationPtr make_backend_registration(std::shared_ptr<Backend> backend) {
    auto registration = std::make_unique<Registration>();
    registration->backend = std::move(backend);
    registration->reg = {GGML_BACKEND_API_VERSION, registration_interface(), registration.get()};
    registration->device = {device_interface(), &registration->reg, registration.get()};
    registration->buffer_type = {buffer_type_interface(), &registration->device, registration.get()};
    return RegistrationPtr(&registration.release()->reg);
}

Result<std::shared_ptr<Backend>> register_backend(BackendConfig config, BackendUse use) {
    if (ggml_backend_reg_by_name(kName) != nullptr) {
        return fail(ErrorKind::usage,
                    "the KVASIR backend is registered in this process already (is GGML_BACKEND_PATH set? unset it)");
    }
    auto backend = std::make_shared<Backend>(std::move(config), use);
    ggml_backend_register(make_backend_registration(backend).release());
    return backend;
}

}  // namespace kvasir
