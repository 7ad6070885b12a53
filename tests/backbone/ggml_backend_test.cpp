// The backend as ggml's scheduler sees it, on random layers: against ggml's CPU backend, bit for bit.
#include "backbone/ggml_backend.h"

#include <ggml-alloc.h>
#include <ggml-cpu.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "backbone/moe_graph.h"
#include "ggml-backend-impl.h"

namespace kvasir {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

struct Free {
    void operator()(ggml_backend_t backend) const { ggml_backend_free(backend); }
    void operator()(ggml_backend_buffer_t buffer) const { ggml_backend_buffer_free(buffer); }
    void operator()(ggml_backend_sched_t scheduler) const { ggml_backend_sched_free(scheduler); }
};
using BackendPtr = std::unique_ptr<ggml_backend, Free>;
using BufferPtr = std::unique_ptr<ggml_backend_buffer, Free>;
using SchedulerPtr = std::unique_ptr<ggml_backend_sched, Free>;

// Answers from the local replica in two halves, as if one of them had been a worker's, and remembers its calls.
class HalvingDispatcher : public Dispatcher {
  public:
    Status compute(const ExpertCall& call, LocalExperts& local) override {
        calls.push_back({call.layer, {call.pairs.begin(), call.pairs.end()}});
        encoding = call.row_encoding;
        row_count = call.row_count();
        if (failing) return fail(ErrorKind::internal, "told to fail");
        // What ggml will overwrite must not be an input: write all of the output before computing any of it.
        std::fill(call.out.begin(), call.out.end(), -1.0F);
        std::size_t half = call.pairs.size() / 2;
        Status first = local.compute(call, call.pairs.first(half), call.out.first(half * call.hidden));
        if (!first) return first;
        return local.compute(call, call.pairs.subspan(half), call.out.subspan(half * call.hidden));
    }
    bool wait_for_workers(std::chrono::milliseconds /*timeout*/) override { return true; }
    SwarmStats stats() const override { return {}; }

    std::vector<std::pair<std::uint32_t, std::vector<Pair>>> calls;
    RowEncoding encoding = RowEncoding::f32;  // of the last
    std::size_t row_count = 0;
    bool failing = false;
};

class Recorder : public ExpertObserver {
  public:
    void observe(std::uint32_t layer, std::span<const float> rows, std::span<const Pair> selected,
                 std::span<const float> out) override {
        layers.push_back(layer);
        inputs.insert(inputs.end(), rows.begin(), rows.end());
        pairs.insert(pairs.end(), selected.begin(), selected.end());
        outputs.insert(outputs.end(), out.begin(), out.end());
    }
    std::vector<std::uint32_t> layers;
    std::vector<float> inputs;
    std::vector<Pair> pairs;
    std::vector<float> outputs;
};

// One layer whose weights lie in a buffer of a given type, and a scheduler that computes it.
class Layer {
  public:
    Layer(const Recipe& recipe, const MoeShape& shape, std::vector<ggml_backend_t> backends)
        : shape_(shape), context_(make_context()), graph_context_(make_context()) {
        weights = make_weights(context_.get(), recipe, shape);
        weights_.reset(ggml_backend_alloc_ctx_tensors_from_buft(
            context_.get(), ggml_backend_get_default_buffer_type(backends.front())));
        ggml_backend_buffer_set_usage(weights_.get(), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
        std::mt19937 random(17);
        for (ggml_tensor* t = ggml_get_first_tensor(context_.get()); t != nullptr;
             t = ggml_get_next_tensor(context_.get(), t)) {
            fill(t, random);
        }
        moe = build_moe(graph_context_.get(), recipe, weights, shape);
        scheduler_.reset(
            ggml_backend_sched_new(backends.data(), nullptr, static_cast<int>(backends.size()), 512, false, false));
    }

    ggml_context* context() { return graph_context_.get(); }

    // Allocates the graph and sets its inputs; the same in every layer of one shape.
    void prepare() {
        ggml_backend_sched_reset(scheduler_.get());
        ASSERT_TRUE(ggml_backend_sched_alloc_graph(scheduler_.get(), moe.graph));
        set_inputs();
    }

    // A computed graph may have taken its inputs' memory for other tensors.
    void set_inputs() {
        std::mt19937 random(4);
        fill(moe.input, random);
        fill(moe.router, random);
        std::vector<std::int32_t> order(static_cast<std::size_t>(ggml_nelements(moe.argsort)));
        for (std::size_t i = 0; i < order.size(); ++i) {
            std::size_t experts = static_cast<std::size_t>(shape_.experts);
            std::size_t token = i / experts;
            order[i] = static_cast<std::int32_t>((i * 3 + token) % experts);
        }
        if (bad_id) order.at(static_cast<std::size_t>(shape_.experts) + 1) = *bad_id;
        ggml_backend_tensor_set(moe.argsort, order.data(), 0, ggml_nbytes(moe.argsort));
    }

    std::vector<float> compute() {
        prepare();
        EXPECT_EQ(ggml_backend_sched_graph_compute(scheduler_.get(), moe.graph), GGML_STATUS_SUCCESS);
        return values(ggml_graph_node(moe.graph, -1));
    }
    ggml_status compute_status() {
        prepare();
        return ggml_backend_sched_graph_compute(scheduler_.get(), moe.graph);
    }
    static std::vector<float> values(const ggml_tensor* tensor) {
        std::vector<float> copy(static_cast<std::size_t>(ggml_nelements(tensor)));
        ggml_backend_tensor_get(tensor, copy.data(), 0, ggml_nbytes(tensor));
        return copy;
    }
    int splits() const { return ggml_backend_sched_get_n_splits(scheduler_.get()); }
    ggml_backend_t owner(ggml_tensor* tensor) const {
        return ggml_backend_sched_get_tensor_backend(scheduler_.get(), tensor);
    }

    MoeWeights weights;
    MoeGraph moe;
    std::optional<std::int32_t> bad_id;

  private:
    static void fill(ggml_tensor* tensor, std::mt19937& random) {
        std::vector<float> data(static_cast<std::size_t>(ggml_nelements(tensor)));
        std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
        for (float& value : data)
            value = uniform(random);
        if (tensor->type == GGML_TYPE_F32) {
            ggml_backend_tensor_set(tensor, data.data(), 0, ggml_nbytes(tensor));
            return;
        }
        std::vector<std::byte> quantized(ggml_nbytes(tensor));
        ggml_quantize_chunk(tensor->type, data.data(), quantized.data(), 0, ggml_nrows(tensor), tensor->ne[0], nullptr);
        ggml_backend_tensor_set(tensor, quantized.data(), 0, quantized.size());
    }

    MoeShape shape_;
    ContextPtr context_;
    ContextPtr graph_context_;
    BufferPtr weights_;
    SchedulerPtr scheduler_;
};

// The bits of ggml's own CPU backend.
BackendConfig in_ggml_cpu() {
    return {.dispatcher = nullptr, .observer = nullptr, .manifest = nullptr, .arithmetic = Arithmetic::ggml_cpu};
}

class GgmlBackendTest : public ::testing::Test {
  protected:
    GgmlBackendTest()
        : backend(std::make_shared<Backend>(in_ggml_cpu())),
          registration(make_backend_registration(backend)),
          device(ggml_backend_reg_dev_get(registration.get(), 0)),
          ours(ggml_backend_dev_init(device, nullptr)),
          cpu(ggml_backend_cpu_init()) {
        ggml_backend_cpu_set_n_threads(cpu.get(), 2);
        auto set_threads = reinterpret_cast<ggml_backend_set_n_threads_t>(
            ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(device), "ggml_backend_set_n_threads"));
        set_threads(ours.get(), 2);
    }

    std::vector<float> reference(const Recipe& recipe, const MoeShape& shape) {
        return Layer(recipe, shape, {cpu.get()}).compute();
    }
    Layer layer(const Recipe& recipe, const MoeShape& shape) { return {recipe, shape, {ours.get(), cpu.get()}}; }

    std::shared_ptr<Backend> backend;
    RegistrationPtr registration;
    ggml_backend_dev_t device;
    BackendPtr ours;
    BackendPtr cpu;
};

std::vector<Recipe> recipes() {
    return {
        {.activation = Activation::silu},
        {.activation = Activation::silu, .fused_gate_up = true},
        {.activation = Activation::gelu, .fused_gate_up = true, .up_bias = true, .up_scale = true},
        {.activation = Activation::relu_squared, .gated = false, .down_scale = true},
        {.activation = Activation::swiglu_oai,
         .gate_bias = true,
         .up_bias = true,
         .down_bias = true,
         .alpha = 1.702F,
         .limit = 7.0F},
        {.activation = Activation::swiglu_limited,
         .gate_scale = true,
         .up_scale = true,
         .down_scale = true,
         .limit = 0.5F},
        {.activation = Activation::swiglu_clamp, .limit = 0.5F},
    };
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST_F(GgmlBackendTest, ComputesEveryRecipeToTheBitWithAndWithoutADispatcher) {
    for (const Recipe& recipe : recipes()) {
        for (bool before : {false, true}) {
            SCOPED_TRACE(describe(recipe) + (before ? ", weighted before" : ""));
            MoeShape shape{.tokens = 5, .weight_before = before};
            std::vector<float> expected = reference(recipe, shape);
            backend->configure(in_ggml_cpu());
            EXPECT_TRUE(same_bits(layer(recipe, shape).compute(), expected)) << "M0";
            auto dispatcher = std::make_shared<HalvingDispatcher>();
            backend->configure({.dispatcher = dispatcher,
                                .observer = nullptr,
                                .manifest = nullptr,
                                .arithmetic = Arithmetic::ggml_cpu});
            EXPECT_TRUE(same_bits(layer(recipe, shape).compute(), expected)) << "dispatched";
            EXPECT_THAT(dispatcher->calls, SizeIs(1));
        }
    }
    EXPECT_EQ(backend->undelegated(), 0U);
}

TEST_F(GgmlBackendTest, ComputesQuantisedWeightsToTheBit) {
    for (ggml_type type : {GGML_TYPE_Q4_K, GGML_TYPE_Q8_0, GGML_TYPE_MXFP4, GGML_TYPE_F16}) {
        SCOPED_TRACE(ggml_type_name(type));
        MoeShape shape{.hidden = 256, .ff = 256, .tokens = 9, .type = type};
        Recipe recipe{.activation = Activation::silu};
        backend->configure({.dispatcher = std::make_shared<HalvingDispatcher>(),
                            .observer = nullptr,
                            .manifest = nullptr,
                            .arithmetic = Arithmetic::ggml_cpu});
        EXPECT_TRUE(same_bits(layer(recipe, shape).compute(), reference(recipe, shape)));
    }
}

// Numbers that portable/1 has rounded for the way are rounded by it no more.
std::vector<float> rounded(std::vector<float> rows, std::size_t hidden) {
    ByteVector encoded(rows.size() / hidden * row_bytes(RowEncoding::i16x256, hidden));
    encode_rows(RowEncoding::i16x256, hidden, rows, encoded);
    EXPECT_TRUE(decode_results(RowEncoding::i16x256, hidden, encoded, rows));
    return rows;
}

// Relative to the root mean square of `right`.
double distance(const std::vector<float>& left, const std::vector<float>& right) {
    double difference = 0;
    double size = 0;
    for (std::size_t i = 0; i < right.size(); ++i) {
        difference += std::pow(left.at(i) - right[i], 2);
        size += std::pow(right[i], 2);
    }
    return std::sqrt(difference / size);
}

TEST_F(GgmlBackendTest, ComputesInPortableToTheBitWithAndWithoutADispatcher) {
    const auto check = [&](const Recipe& recipe, const MoeShape& shape, double tolerance) {
        SCOPED_TRACE(describe(recipe) + ", " + ggml_type_name(shape.type));
        auto observer = std::make_shared<Recorder>();
        backend->configure(
            {.dispatcher = nullptr, .observer = observer, .manifest = nullptr, .arithmetic = Arithmetic::portable});
        const std::vector<float> alone = layer(recipe, shape).compute();
        EXPECT_TRUE(same_bits(rounded(observer->outputs, static_cast<std::size_t>(shape.hidden)), observer->outputs));
        EXPECT_LT(distance(alone, reference(recipe, shape)), tolerance);
        auto dispatcher = std::make_shared<HalvingDispatcher>();
        backend->configure(
            {.dispatcher = dispatcher, .observer = nullptr, .manifest = nullptr, .arithmetic = Arithmetic::portable});
        EXPECT_TRUE(same_bits(layer(recipe, shape).compute(), alone));
        EXPECT_THAT(dispatcher->calls, SizeIs(1));
    };
    for (const Recipe& recipe : recipes()) {
        check(recipe, {.tokens = 5}, 1e-3);
        check(recipe, {.tokens = 5, .weight_before = true}, 1e-3);
    }
    for (ggml_type type : {GGML_TYPE_Q4_K, GGML_TYPE_Q8_0, GGML_TYPE_MXFP4, GGML_TYPE_F16}) {
        check({.activation = Activation::silu}, {.hidden = 256, .ff = 256, .tokens = 9, .type = type}, 0.05);
    }
    EXPECT_EQ(backend->undelegated(), 0U);
}

TEST_F(GgmlBackendTest, HandsRowsToTheDispatcherAsTheyTravel) {
    const MoeShape shape{.hidden = 256, .ff = 256, .tokens = 3, .type = GGML_TYPE_Q4_K};
    auto dispatcher = std::make_shared<HalvingDispatcher>();
    for (auto [arithmetic, encoding] :
         {std::pair(Arithmetic::portable, RowEncoding::q8x256), std::pair(Arithmetic::ggml_cpu, RowEncoding::f32)}) {
        backend->configure(
            {.dispatcher = dispatcher, .observer = nullptr, .manifest = nullptr, .arithmetic = arithmetic});
        layer({.activation = Activation::silu}, shape).compute();
        EXPECT_EQ(dispatcher->encoding, encoding);
        EXPECT_EQ(dispatcher->row_count, 3U);
    }
}

// Whoever has nobody to ask computes in portable all the same.
TEST_F(GgmlBackendTest, ClaimsItsGroupsForPortableEvenWhereNobodyEverListens) {
    const Recipe recipe{.activation = Activation::silu, .up_scale = true};
    auto fixed = std::make_shared<Backend>(
        BackendConfig{
            .dispatcher = nullptr, .observer = nullptr, .manifest = nullptr, .arithmetic = Arithmetic::portable},
        BackendUse::fixed);
    RegistrationPtr described = make_backend_registration(fixed);
    BackendPtr instance(ggml_backend_dev_init(ggml_backend_reg_dev_get(described.get(), 0), nullptr));
    Layer made(recipe, {}, {instance.get(), cpu.get()});
    const std::vector<float> computed = made.compute();
    EXPECT_EQ(made.splits(), 2);
    backend->configure(
        {.dispatcher = nullptr, .observer = nullptr, .manifest = nullptr, .arithmetic = Arithmetic::portable});
    EXPECT_TRUE(same_bits(computed, layer(recipe, {}).compute()));
    EXPECT_FALSE(same_bits(computed, reference(recipe, {})));
}

TEST_F(GgmlBackendTest, LeavesWhatPortableDoesNotDefineToTheCpuBackend) {
    const Recipe recipe{.activation = Activation::silu};
    const MoeShape shape{.hidden = 256, .ff = 256, .tokens = 3, .type = GGML_TYPE_Q2_0};
    auto dispatcher = std::make_shared<HalvingDispatcher>();
    backend->configure(
        {.dispatcher = dispatcher, .observer = nullptr, .manifest = nullptr, .arithmetic = Arithmetic::portable});
    EXPECT_TRUE(same_bits(layer(recipe, shape).compute(), reference(recipe, shape)));
    EXPECT_TRUE(dispatcher->calls.empty());
    EXPECT_EQ(backend->undelegated(), 1U);
}

TEST_F(GgmlBackendTest, TakesTheWholeGroupAndNothingElseInOneSplit) {
    for (const Recipe& recipe : recipes()) {
        SCOPED_TRACE(describe(recipe));
        Layer made = layer(recipe, {});
        made.prepare();
        EXPECT_EQ(made.splits(), 2);  // the group, then the router's weights
        EXPECT_EQ(made.owner(made.moe.out), ours.get());
        EXPECT_EQ(made.owner(made.moe.hidden), ours.get());
        EXPECT_EQ(made.owner(made.moe.weighted), cpu.get());
    }
}

TEST_F(GgmlBackendTest, KeepsOnlyTheWeightsWhereNobodyEverListens) {
    auto fixed = std::make_shared<Backend>(in_ggml_cpu(), BackendUse::fixed);
    RegistrationPtr described = make_backend_registration(fixed);
    ggml_backend_dev_t idle = ggml_backend_reg_dev_get(described.get(), 0);
    BackendPtr instance(ggml_backend_dev_init(idle, nullptr));
    Recipe recipe{.activation = Activation::silu, .up_scale = true};
    Layer made(recipe, {}, {instance.get(), cpu.get()});
    EXPECT_TRUE(same_bits(made.compute(), reference(recipe, {})));
    EXPECT_EQ(made.splits(), 1);
    EXPECT_EQ(ggml_backend_buffer_get_type(made.weights.up->buffer), ggml_backend_dev_buffer_type(idle));
    // Too little memory for the weights: their slabs are read ahead, layer by layer.
    fixed->add_mapped_bytes(std::uint64_t{1} << 60);
    EXPECT_TRUE(same_bits(made.compute(), reference(recipe, {})));
    EXPECT_EQ(made.splits(), 2);
    fixed->remove_mapped_bytes(std::uint64_t{1} << 60);
}

TEST_F(GgmlBackendTest, HandsTheDispatcherLayerRowsAndPairs) {
    MoeShape shape{.slots = 2, .tokens = 2};
    auto dispatcher = std::make_shared<HalvingDispatcher>();
    backend->configure(
        {.dispatcher = dispatcher, .observer = nullptr, .manifest = nullptr, .arithmetic = Arithmetic::ggml_cpu});
    layer({.activation = Activation::silu}, shape).compute();
    ASSERT_THAT(dispatcher->calls, SizeIs(1));
    EXPECT_EQ(dispatcher->calls[0].first, shape.layer);
    // Ids as prepare() sets them, for 8 experts: (3 i + token) mod 8; rows are shared by a token's slots.
    EXPECT_THAT(dispatcher->calls[0].second, ElementsAre(Pair{0, 0}, Pair{0, 3}, Pair{1, 1}, Pair{1, 4}));
    EXPECT_EQ(backend->counters().at(shape.layer).pairs, 4U);
    EXPECT_EQ(backend->counters().at(shape.layer).pairs_local, 4U);
}

TEST_F(GgmlBackendTest, GivesEverySlotItsOwnRowWhereItIsWeightedBefore) {
    auto dispatcher = std::make_shared<HalvingDispatcher>();
    backend->configure(
        {.dispatcher = dispatcher, .observer = nullptr, .manifest = nullptr, .arithmetic = Arithmetic::ggml_cpu});
    layer({.activation = Activation::silu}, {.slots = 2, .tokens = 2, .weight_before = true}).compute();
    EXPECT_THAT(dispatcher->calls.at(0).second, ElementsAre(Pair{0, 0}, Pair{1, 3}, Pair{2, 1}, Pair{3, 4}));
}

TEST_F(GgmlBackendTest, ShowsTheObserverTheSameWhoeverComputes) {
    Recipe recipe{.activation = Activation::silu, .down_bias = true};
    auto alone = std::make_shared<Recorder>();
    backend->configure(
        {.dispatcher = nullptr, .observer = alone, .manifest = nullptr, .arithmetic = Arithmetic::ggml_cpu});
    layer(recipe, {}).compute();
    auto dispatched = std::make_shared<Recorder>();
    backend->configure({.dispatcher = std::make_shared<HalvingDispatcher>(),
                        .observer = dispatched,
                        .manifest = nullptr,
                        .arithmetic = Arithmetic::ggml_cpu});
    layer(recipe, {}).compute();
    EXPECT_THAT(alone->layers, ElementsAre(5U));
    EXPECT_EQ(alone->layers, dispatched->layers);
    EXPECT_EQ(alone->pairs, dispatched->pairs);
    EXPECT_TRUE(same_bits(alone->inputs, dispatched->inputs));
    EXPECT_TRUE(same_bits(alone->outputs, dispatched->outputs));
    EXPECT_THAT(alone->outputs, SizeIs(64 * 2 * 3));
}

// ggml frees a group's rows after their last projection and may give their memory to its output (it does so for rows
// that were copied from another device).
TEST_F(GgmlBackendTest, ReadsItsRowsBeforeItsOutputTakesTheirMemory) {
    Recipe recipe{.activation = Activation::silu};
    for (bool dispatched : {false, true}) {
        auto observer = std::make_shared<Recorder>();
        std::shared_ptr<Dispatcher> dispatcher = dispatched ? std::make_shared<HalvingDispatcher>() : nullptr;
        backend->configure(
            {.dispatcher = dispatcher, .observer = observer, .manifest = nullptr, .arithmetic = Arithmetic::ggml_cpu});
        Layer made = layer(recipe, {});
        ASSERT_EQ(made.compute_status(), GGML_STATUS_SUCCESS);
        std::vector<float> expected = std::exchange(observer->outputs, {});
        observer->inputs.clear();

        made.set_inputs();
        std::vector<float> input = Layer::values(made.moe.input);
        for (ggml_tensor* rows : {made.moe.input, made.moe.rows})
            rows->data = made.moe.out->data;
        std::memcpy(made.moe.out->data, input.data(), input.size() * sizeof(float));
        ggml_cgraph* graph = ggml_new_graph(made.context());
        ggml_build_forward_expand(graph, made.moe.out);
        ASSERT_EQ(ggml_backend_graph_compute(ours.get(), graph), GGML_STATUS_SUCCESS);
        EXPECT_TRUE(same_bits(observer->inputs, input));
        // ggml's own kernels would read what they have overwritten: it is up to the allocator never to let them.
        if (dispatched) {
            EXPECT_TRUE(same_bits(observer->outputs, expected));
        }
    }
}

TEST_F(GgmlBackendTest, FailsOnIdsThatDoNotExist) {
    for (std::int32_t bad : {-1, 8, 1 << 30}) {
        SCOPED_TRACE(bad);
        auto dispatcher = std::make_shared<HalvingDispatcher>();
        backend->configure(
            {.dispatcher = dispatcher, .observer = nullptr, .manifest = nullptr, .arithmetic = Arithmetic::ggml_cpu});
        Layer made = layer({.activation = Activation::silu}, {});
        made.bad_id = bad;
        EXPECT_EQ(made.compute_status(), GGML_STATUS_FAILED);
        EXPECT_TRUE(dispatcher->calls.empty());
    }
}

TEST_F(GgmlBackendTest, FailsWhenTheDispatcherFails) {
    auto dispatcher = std::make_shared<HalvingDispatcher>();
    dispatcher->failing = true;
    backend->configure(
        {.dispatcher = dispatcher, .observer = nullptr, .manifest = nullptr, .arithmetic = Arithmetic::ggml_cpu});
    EXPECT_EQ(layer({.activation = Activation::silu}, {}).compute_status(), GGML_STATUS_FAILED);
}

TEST_F(GgmlBackendTest, StopsWhenItIsAborted) {
    auto dispatcher = std::make_shared<HalvingDispatcher>();
    backend->configure(
        {.dispatcher = dispatcher, .observer = nullptr, .manifest = nullptr, .arithmetic = Arithmetic::ggml_cpu});
    auto set_abort = reinterpret_cast<ggml_backend_set_abort_callback_t>(
        ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(device), "ggml_backend_set_abort_callback"));
    set_abort(
        ours.get(), [](void*) { return true; }, nullptr);
    EXPECT_EQ(layer({.activation = Activation::silu}, {}).compute_status(), GGML_STATUS_ABORTED);
    EXPECT_TRUE(dispatcher->calls.empty());
}

TEST_F(GgmlBackendTest, LeavesWhatItCannotExpressToTheCpuBackend) {
    // An intermediate with a second reader: right result, nothing dispatched, and counted.
    Recipe recipe{.activation = Activation::silu};
    auto with_reader = [&](std::vector<ggml_backend_t> backends) {
        auto made = std::make_unique<Layer>(recipe, MoeShape{}, std::move(backends));
        ggml_tensor* sum = ggml_sum(made->context(), made->moe.hidden);
        ggml_build_forward_expand(made->moe.graph, ggml_add(made->context(), made->moe.weighted, sum));
        return made->compute();
    };
    auto dispatcher = std::make_shared<HalvingDispatcher>();
    backend->configure(
        {.dispatcher = dispatcher, .observer = nullptr, .manifest = nullptr, .arithmetic = Arithmetic::ggml_cpu});
    EXPECT_TRUE(same_bits(with_reader({ours.get(), cpu.get()}), with_reader({cpu.get()})));
    EXPECT_TRUE(dispatcher->calls.empty());
    EXPECT_EQ(backend->undelegated(), 3U);  // gate, up and down
}

TEST_F(GgmlBackendTest, LeavesWeightsThatAreNotTheManifestsToTheCpuBackend) {
    auto manifest = std::make_shared<Manifest>();
    auto dispatcher = std::make_shared<HalvingDispatcher>();
    backend->configure({.dispatcher = dispatcher, .observer = nullptr, .manifest = manifest});
    Recipe recipe{.activation = Activation::silu};
    EXPECT_TRUE(same_bits(layer(recipe, {}).compute(), reference(recipe, {})));
    EXPECT_TRUE(dispatcher->calls.empty());
    EXPECT_EQ(backend->undelegated(), 1U);
}

// The manifest's entry for a tensor in memory.
ManifestTensor listed(Role role, const ggml_tensor* tensor) {
    ManifestTensor entry;
    entry.role = role;
    entry.name = tensor->name;
    entry.type = static_cast<std::uint32_t>(tensor->type);
    std::copy_n(tensor->ne, entry.shape.size(), entry.shape.begin());
    entry.slab_bytes = tensor->nb[2];
    for (std::int64_t expert = 0; expert < tensor->ne[2]; ++expert) {
        const auto* slab =
            static_cast<const std::byte*>(tensor->data) + static_cast<std::size_t>(expert) * tensor->nb[2];
        entry.slabs.push_back(sha256(ByteSpan(slab, tensor->nb[2])));
    }
    return entry;
}

TEST_F(GgmlBackendTest, DelegatesWeightsThatAreTheManifests) {
    Recipe recipe{.activation = Activation::silu};
    Layer made = layer(recipe, {});
    auto manifest = std::make_shared<Manifest>();
    ManifestLayer entry{.layer = 5, .experts = 8, .hidden = 64, .ff = 32, .recipe = recipe, .tensors = {}};
    entry.tensors = {listed(Role::gate, made.weights.gate), listed(Role::up, made.weights.up),
                     listed(Role::down, made.weights.down)};
    manifest->layers = {entry};
    auto dispatcher = std::make_shared<HalvingDispatcher>();
    backend->configure({.dispatcher = dispatcher, .observer = nullptr, .manifest = manifest});
    made.compute();
    EXPECT_THAT(dispatcher->calls, SizeIs(1));

    auto changed = std::make_shared<Manifest>(*manifest);
    changed->layers[0].tensors[2].slabs[0][0] ^= std::byte{1};
    backend->configure({.dispatcher = dispatcher, .observer = nullptr, .manifest = changed});
    made.compute();
    EXPECT_THAT(dispatcher->calls, SizeIs(1)) << "other bytes are not delegated";
}

TEST_F(GgmlBackendTest, ClaimsExpertWeightsDuringPlacementAndNoOthers) {
    // llama.cpp asks with a zero-size buffer of our type on the weight.
    ContextPtr context = make_context();
    BufferPtr dummy(ggml_backend_buft_alloc_buffer(ggml_backend_dev_buffer_type(device), 0));
    auto weight = [&](ggml_tensor* tensor) {
        tensor->buffer = dummy.get();
        return tensor;
    };
    ggml_context* c = context.get();
    ggml_tensor* rows = ggml_new_tensor_3d(c, GGML_TYPE_F32, 64, 2, 512);
    ggml_tensor* ids = ggml_new_tensor_2d(c, GGML_TYPE_I32, 2, 512);
    ggml_tensor* experts = weight(ggml_new_tensor_3d(c, GGML_TYPE_Q4_0, 64, 32, 8));
    ggml_tensor* bias = weight(ggml_new_tensor_2d(c, GGML_TYPE_F32, 64, 8));
    ggml_tensor* dense = weight(ggml_new_tensor_2d(c, GGML_TYPE_Q4_0, 64, 32));
    EXPECT_TRUE(ggml_backend_dev_supports_op(device, ggml_mul_mat_id(c, experts, rows, ids)));
    EXPECT_TRUE(ggml_backend_dev_supports_op(device, ggml_add_id(c, rows, bias, ids)));
    EXPECT_FALSE(ggml_backend_dev_supports_op(device, ggml_mul_mat(c, dense, rows)));
    EXPECT_FALSE(
        ggml_backend_dev_supports_op(device, ggml_get_rows(c, dense, ggml_new_tensor_1d(c, GGML_TYPE_I32, 4))));
    EXPECT_FALSE(
        ggml_backend_dev_supports_op(device, ggml_mul(c, rows, weight(ggml_new_tensor_1d(c, GGML_TYPE_F32, 64)))));
    ggml_tensor* elsewhere = ggml_new_tensor_3d(c, GGML_TYPE_Q4_0, 64, 32, 8);
    EXPECT_FALSE(ggml_backend_dev_supports_op(device, ggml_mul_mat_id(c, elsewhere, rows, ids)));
}

TEST_F(GgmlBackendTest, DescribesItselfAsLlamaCppNeedsIt) {
    EXPECT_STREQ(ggml_backend_dev_name(device), "KVASIR");
    EXPECT_EQ(ggml_backend_dev_type(device), GGML_BACKEND_DEVICE_TYPE_ACCEL);
    ggml_backend_dev_props props{};
    ggml_backend_dev_get_props(device, &props);
    EXPECT_TRUE(props.caps.buffer_from_host_ptr);
    EXPECT_FALSE(props.caps.async);
    ggml_backend_buffer_type_t type = ggml_backend_dev_buffer_type(device);
    EXPECT_STREQ(ggml_backend_buft_name(type), "KVASIR");
    EXPECT_TRUE(ggml_backend_buft_is_host(type));
    EXPECT_TRUE(ggml_backend_dev_supports_buft(device, ggml_backend_cpu_buffer_type()));
}

TEST_F(GgmlBackendTest, TakesMappedMemoryWithoutACopy) {
    ContextPtr context = make_context();
    ggml_tensor* tensor = ggml_new_tensor_3d(context.get(), GGML_TYPE_F32, 64, 64, 4);
    std::vector<std::byte> memory(ggml_nbytes(tensor) + 64);
    auto address = (reinterpret_cast<std::uintptr_t>(memory.data()) + 63) & ~std::uintptr_t{63};
    auto* data = reinterpret_cast<std::byte*>(address);
    BufferPtr buffer(ggml_backend_dev_buffer_from_host_ptr(device, data, ggml_nbytes(tensor), ggml_nbytes(tensor)));
    ASSERT_EQ(ggml_backend_tensor_alloc(buffer.get(), tensor, data), GGML_STATUS_SUCCESS);
    EXPECT_EQ(tensor->data, data);
    EXPECT_EQ(ggml_backend_buffer_get_type(buffer.get()), ggml_backend_dev_buffer_type(device));
}

}  // namespace
}  // namespace kvasir
