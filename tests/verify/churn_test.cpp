// Verification while workers go. One process per test: see verify_presets_test.cpp.
#include <gtest/gtest.h>

#include "base/temp_directory.h"
#include "synth/synth.h"
#include "verify/local_swarm.h"
#include "verify/verify.h"

namespace kvasir {
namespace {

// Ends a worker before it hands the n-th call on, so that it happens in the middle of a token, at a chosen layer.
class EndingWorkers : public Dispatcher {
  public:
    EndingWorkers(std::shared_ptr<Dispatcher> dispatcher, LocalSwarm& swarm, std::vector<std::uint64_t> at_calls)
        : dispatcher_(std::move(dispatcher)), swarm_(swarm), at_calls_(std::move(at_calls)) {}

    Status compute(const ExpertCall& call, LocalExperts& local) override {
        ++calls_;
        for (std::size_t worker = 0; worker < at_calls_.size(); ++worker) {
            if (at_calls_[worker] == calls_) swarm_.end_worker(worker);
        }
        return dispatcher_->compute(call, local);
    }
    bool wait_for_workers(std::chrono::milliseconds timeout) override { return dispatcher_->wait_for_workers(timeout); }
    SwarmStats stats() const override { return dispatcher_->stats(); }

  private:
    std::shared_ptr<Dispatcher> dispatcher_;
    LocalSwarm& swarm_;
    std::vector<std::uint64_t> at_calls_;
    std::uint64_t calls_ = 0;
};

TEST(VerifyChurn, WorkersThatEndInTheMiddleOfATokenChangeNoBit) {
    Result<TempDirectory> directory = TempDirectory::create("kvasir-verify-test-");
    ASSERT_TRUE(directory) << directory.error().message;
    const std::filesystem::path model = directory->path() / "model.gguf";
    Result<SynthSpec> spec = preset("tiny-qwen3moe");  // three layers
    ASSERT_TRUE(spec);
    ASSERT_TRUE(synthesize(*spec, model, {.threads = 2}));
    Result<std::unique_ptr<LocalSwarm>> swarm = LocalSwarm::start(model);
    ASSERT_TRUE(swarm) << swarm.error().message;
    Result<BackendConfig> connected = (*swarm)->connect();
    ASSERT_TRUE(connected) << connected.error().message;

    VerifyOptions options;
    options.model = model;
    options.tokens = 48;  // two batches of 24: six calls
    options.single_tokens = 48;
    options.batch = 24;
    options.quiet = true;
    options.manifest = connected->manifest;
    // The first worker goes before the second layer of the 16th single token, the other one 16 tokens later.
    options.dispatcher =
        std::make_shared<EndingWorkers>(connected->dispatcher, **swarm, std::vector<std::uint64_t>{53, 101});
    Result<VerifyReport> report = verify(options);
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_TRUE(report->identical()) << table(*report);
    EXPECT_EQ(report->swarm->pairs_remote + report->swarm->pairs_local, report->pairs);
    // Before it went, each worker computed; with both gone, all was computed here: 16 tokens, 3 layers, 2 experts each.
    for (const WorkerStatus& worker : report->swarm->workers)
        EXPECT_GT(worker.pairs, 0U);
    EXPECT_GE(report->swarm->pairs_local, 16U * 3U * 2U);
}

}  // namespace
}  // namespace kvasir
