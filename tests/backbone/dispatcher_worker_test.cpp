// The dispatcher with real workers: servers in this process, over TLS, computing slices of the bundled model with the
// real engine. Every bit is compared with the same engine on the whole model.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <random>
#include <thread>

#include "backbone/dispatcher.h"
#include "backbone/dispatcher_fixture.h"
#include "backbone/local_replica.h"
#include "base/temp_directory.h"
#include "expert/engine.h"
#include "gguf/manifest.h"
#include "gguf/slice.h"
#include "worker/server.h"

namespace kvasir::test {
namespace {

using std::chrono::milliseconds;

template <class T>
T must(Result<T> result) {
    if (!result) throw std::runtime_error(result.error().message);
    return std::move(*result);
}

// All experts, computed here, as the backbone does it.
class StoreExperts : public LocalExperts {
  public:
    StoreExperts(const PieceStore& store, Arithmetic arithmetic)
        : store_(store), arithmetic_(arithmetic), engine_(must(Engine::create(arithmetic, 1))) {}

    const LayerWeights& weights(std::uint32_t layer) const { return store_.find(layer, 0).value().held->weights; }
    Status compute(const ExpertCall& call, std::span<const Pair> pairs, std::span<float> out) override {
        return LocalReplica(weights(call.layer), arithmetic_, *engine_, prefetcher_).compute(call, pairs, out);
    }

  private:
    const PieceStore& store_;
    const Arithmetic arithmetic_;
    std::unique_ptr<Engine> engine_;
    SlabPrefetcher prefetcher_;
};

class DispatcherWorker : public ::testing::TestWithParam<Arithmetic> {
  protected:
    DispatcherWorker() {
        select_exact_kernels();
        manifest_ = must(publish(model_, map_, {.threads = 1, .quiet = true})).manifest;
        whole_ = open("whole", 0, 1);
        local_ = std::make_unique<StoreExperts>(*whole_, GetParam());
    }

    // A store of the experts from `first` to `last`, in parts of all, of every layer.
    std::optional<PieceStore> open(const std::string& name, double first, double last) const {
        std::vector<Piece> pieces;
        for (const ExpertLayer& layer : map_.layers) {
            auto begin = static_cast<std::uint32_t>(first * layer.experts);
            auto end = static_cast<std::uint32_t>(last * layer.experts);
            pieces.push_back({layer.layer, begin, end - begin});
        }
        std::filesystem::path path = directory_.path() / name;
        must(write_slice(model_, map_, &manifest_, pieces, path, true));
        return must(PieceStore::open(std::span(&path, 1), 1));
    }

    std::unique_ptr<Server> serve(const std::string& name, double first, double last) const {
        ServerOptions options;
        options.listen = {"127.0.0.1", 0};
        options.identity = std::make_shared<const Identity>(must(Identity::generate()));
        options.admitted = {identity_->id()};
        ids_.push_back(options.identity->id());
        std::unique_ptr<Server> server = must(Server::bind(std::move(options)));
        if (Status status = server->serve(*open(name, first, last)); !status) {
            throw std::runtime_error(status.error().message);
        }
        return server;
    }

    SwarmConfig config(const std::vector<const Server*>& servers) const {
        SwarmConfig config = test_config({}, milliseconds(60'000));
        config.identity = identity_;
        config.model_id = manifest_.model_id();
        config.arithmetic = GetParam();
        for (std::size_t i = 0; i < servers.size(); ++i) {
            config.workers.push_back({servers[i]->local_address(), ids_[i]});
        }
        return config;
    }

    // Random rows, top-k random experts each; the swarm's rows must be the engine's, byte for byte.
    void compare(Dispatcher& dispatcher, const ExpertLayer& layer, std::uint32_t rows) {
        auto hidden = static_cast<std::uint32_t>(layer.hidden);
        std::uniform_real_distribution<float> number(-2, 2);
        std::vector<float> input(std::size_t{rows} * hidden);
        std::generate(input.begin(), input.end(), [&] { return number(random_); });
        std::vector<Pair> pairs;
        for (std::uint32_t row = 0; row < rows; ++row) {
            for (int slot = 0; slot < 4; ++slot) {
                pairs.push_back({row, static_cast<std::uint32_t>(random_() % layer.experts)});
            }
        }
        const RowEncoding encoding = input_encoding(GetParam(), local_->weights(layer.layer));
        ByteVector encoded(rows * row_bytes(encoding, hidden));
        encode_rows(encoding, hidden, input, encoded);
        std::vector<float> expected(pairs.size() * hidden);
        std::vector<float> out(pairs.size() * hidden, -1);
        ExpertCall reference{layer.layer, hidden, layer.recipe, encoding, encoded, pairs, expected};
        ASSERT_TRUE(local_->compute(reference, pairs, expected));
        Status status = dispatcher.compute({layer.layer, hidden, layer.recipe, encoding, encoded, pairs, out}, *local_);
        ASSERT_TRUE(status) << status.error().message;
        ASSERT_EQ(std::memcmp(out.data(), expected.data(), out.size() * sizeof(float)), 0) << "layer " << layer.layer;
    }

    void compare_all_layers(Dispatcher& dispatcher) {
        for (const ExpertLayer& layer : map_.layers) {
            for (std::uint32_t rows : {1U, 3U, 17U})
                compare(dispatcher, layer, rows);
        }
    }

    TempDirectory directory_ = must(TempDirectory::create("kvasir-dispatcher-"));
    GgufModel model_ = must(GgufModel::open(KVASIR_MODELS "/kvasir-tales-q4_k_m.gguf"));
    ExpertMap map_ = must(map_experts(model_));
    Manifest manifest_;
    std::shared_ptr<const Identity> identity_ = std::make_shared<const Identity>(must(Identity::generate()));
    mutable std::vector<NodeId> ids_;
    std::optional<PieceStore> whole_;
    std::unique_ptr<StoreExperts> local_;
    std::mt19937 random_{5};
};

TEST_P(DispatcherWorker, ComputesTheSameBits) {
    auto low = serve("low", 0, 0.5);
    auto high = serve("high", 0.25, 0.75);
    auto dispatcher = make_dispatcher(config({low.get(), high.get()}));
    ASSERT_TRUE(dispatcher->wait_for_workers(milliseconds(60'000)));
    compare_all_layers(*dispatcher);
    SwarmStats stats = dispatcher->stats();
    EXPECT_GT(stats.pairs_local, 0);
    EXPECT_GT(stats.pairs_remote, stats.pairs_local);
    EXPECT_GT(stats.workers[0].pairs, 0);
    EXPECT_GT(stats.workers[1].pairs, 0);
    EXPECT_EQ(stats.pairs_hedged, 0);
}

TEST_P(DispatcherWorker, DrainsAndDiesWithoutAChangedBit) {
    auto first = serve("first", 0, 1);
    auto second = serve("second", 0, 1);
    auto dispatcher = make_dispatcher(config({first.get(), second.get()}));
    ASSERT_TRUE(dispatcher->wait_for_workers(milliseconds(60'000)));
    compare_all_layers(*dispatcher);
    EXPECT_EQ(dispatcher->stats().pairs_local, 0);
    EXPECT_TRUE(first->drain(milliseconds(10'000)));
    auto state = [&] { return dispatcher->stats().workers[0].state; };
    ASSERT_TRUE(eventually([&] { return state() != WorkerStatus::State::serving; }));
    compare_all_layers(*dispatcher);
    first.reset();
    compare_all_layers(*dispatcher);
    EXPECT_EQ(dispatcher->stats().pairs_hedged, 0) << "a polite end costs nobody anything";
    second.reset();
    compare_all_layers(*dispatcher);
    EXPECT_GT(dispatcher->stats().pairs_local, 0);
}

// Workers end while they are asked, and what they were asked for is computed here, to the same bits.
TEST_P(DispatcherWorker, DiesWhileItIsAskedWithoutAChangedBit) {
    auto first = serve("first", 0, 1);
    auto second = serve("second", 0.25, 1);
    auto dispatcher = make_dispatcher(config({first.get(), second.get()}));
    ASSERT_TRUE(dispatcher->wait_for_workers(milliseconds(60'000)));
    for (std::unique_ptr<Server>* dying : {&first, &second}) {
        std::atomic<int> compared = 0;
        std::jthread killer([&] {
            while (compared == 0)
                std::this_thread::yield();
            dying->reset();
        });
        for (; compared < 3; ++compared)
            compare_all_layers(*dispatcher);
    }
    EXPECT_GT(dispatcher->stats().pairs_remote, 0);
    EXPECT_GT(dispatcher->stats().pairs_local, 0);
}

// Probes are requests like any other: encoded as the layer's weights take them.
TEST_P(DispatcherWorker, AnswersProbes) {
    auto server = serve("probed", 0, 1);
    auto dispatcher = make_dispatcher(config({server.get()}));
    ASSERT_TRUE(dispatcher->wait_for_workers(milliseconds(60'000)));
    compare(*dispatcher, map_.layers.front(), 3);
    const std::uint64_t jobs = server->stats().computed.jobs;
    EXPECT_TRUE(eventually(
        [&] { return server->stats().computed.jobs > jobs || dispatcher->stats().workers[0].failures > 0; }));
    EXPECT_EQ(dispatcher->stats().workers[0].failures, 0);
    compare_all_layers(*dispatcher);
    EXPECT_EQ(dispatcher->stats().pairs_local, 0);
}

INSTANTIATE_TEST_SUITE_P(Arithmetics, DispatcherWorker, ::testing::Values(Arithmetic::ggml_cpu, Arithmetic::portable),
                         [](const auto& param_info) {
                             return std::string(param_info.param == Arithmetic::portable ? "portable" : "ggml_cpu");
                         });

}  // namespace
}  // namespace kvasir::test
