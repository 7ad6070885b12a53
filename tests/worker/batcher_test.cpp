#include "worker/batcher.h"

#include <gmock/gmock.h>

#include <future>

#include "worker/worker_fixture.h"

namespace kvasir::worker_test {
namespace {

using ::testing::HasSubstr;
using Answer = Result<ResultBuffer>;

// Keeps a batcher's thread busy (in a job's `done`) until released, so that what is submitted meanwhile waits.
class Blocker {
  public:
    std::function<void(Answer)> done() {
        return [this](const Answer&) {
            blocking_.set_value();
            released_.get_future().wait();
        };
    }
    void wait_until_blocking() { blocking_.get_future().wait(); }
    void release() { released_.set_value(); }

  private:
    std::promise<void> blocking_;
    std::promise<void> released_;
};

class BatcherTest : public WorkerTest {
  protected:
    std::unique_ptr<Batcher> make_batcher(const BatcherLimits& limits = {}) {
        select_exact_kernels();
        return std::move(*Batcher::create(2, limits));
    }
    std::unique_ptr<Batcher> make_blocked_batcher(Blocker& blocker, const BatcherLimits& limits = {}) {
        auto batcher = make_batcher(limits);
        EXPECT_TRUE(batcher->submit(make_job(store_, ask(0, 1, 1), blocker.done())));
        blocker.wait_until_blocking();
        return batcher;
    }
    // A job whose answer arrives in the future.
    std::pair<JobPtr, std::future<Answer>> future_job(const Question& question) {
        auto promise = std::make_shared<std::promise<Answer>>();
        std::future<Answer> future = promise->get_future();
        return {make_job(store_, question, [promise](Answer answer) { promise->set_value(std::move(answer)); }),
                std::move(future)};
    }
    void expect_answer(std::future<Answer>& future, const Question& question) {
        ASSERT_EQ(future.wait_for(kLongWait), std::future_status::ready);
        const Answer answered = future.get();
        ASSERT_TRUE(answered) << answered.error().message;
        EXPECT_TRUE(same_bits(answered->rows, answer(question)));
        EXPECT_TRUE(decode_result(answered->payload));
    }
    // Layer 0 in two pieces, layer 2 in one.
    const PieceStore store_ = open_store(
        {write_slice_of(model_, "a.gguf", {{0, 0, 5}, {2, 0, 8}}), write_slice_of(model_, "b.gguf", {{0, 5, 3}})});
};

TEST_F(BatcherTest, ComputesAJob) {
    auto batcher = make_batcher();
    const Question question = ask(2, 3, 2);
    auto [job, future] = future_job(question);
    ASSERT_TRUE(batcher->submit(job));
    expect_answer(future, question);
    ASSERT_TRUE(batcher->wait_idle(kLongWait));
    const BatcherStats stats = batcher->stats();
    EXPECT_EQ(stats.jobs, 1U);
    EXPECT_EQ(stats.pairs, 6U);
    EXPECT_GT(stats.weight_bytes, 0U);
}

TEST_F(BatcherTest, JobMayNeedSeveralPieces) {
    auto batcher = make_batcher();
    const Question question = ask(0, 4, 6);
    auto [job, future] = future_job(question);
    ASSERT_EQ(job->parts.size(), 2U);
    ASSERT_TRUE(batcher->submit(job));
    expect_answer(future, question);
}

TEST_F(BatcherTest, ComputesWhatWaitsForOneLayerTogether) {
    Blocker blocker;
    auto batcher = make_blocked_batcher(blocker);
    std::vector<Question> questions;
    std::vector<std::future<Answer>> futures;
    for (std::uint32_t layer : {2, 0, 2, 0, 2}) {
        questions.push_back(ask(layer, 2, 3));
        auto [job, future] = future_job(questions.back());
        ASSERT_TRUE(batcher->submit(job));
        futures.push_back(std::move(future));
    }
    EXPECT_EQ(batcher->waiting(), 5U);
    blocker.release();
    for (std::size_t i = 0; i < questions.size(); ++i)
        expect_answer(futures[i], questions[i]);
    EXPECT_EQ(batcher->stats().batches, 3U);  // the blocker, layer 2, layer 0
    EXPECT_EQ(batcher->stats().jobs, 6U);
}

TEST_F(BatcherTest, RecipesAreNotMixed) {
    Blocker blocker;
    auto batcher = make_blocked_batcher(blocker);
    Question swiglu = ask(2, 2, 3);
    Question geglu = swiglu;
    geglu.recipe.activation = Activation::gelu;
    auto [first, first_future] = future_job(swiglu);
    auto [second, second_future] = future_job(geglu);
    ASSERT_TRUE(batcher->submit(first));
    ASSERT_TRUE(batcher->submit(second));
    blocker.release();
    expect_answer(first_future, swiglu);
    expect_answer(second_future, geglu);
    EXPECT_EQ(batcher->stats().batches, 3U);
}

TEST_F(BatcherTest, ArithmeticsAreNotMixed) {
    Blocker blocker;
    auto batcher = make_blocked_batcher(blocker);
    std::vector<Question> questions;
    std::vector<std::future<Answer>> futures;
    for (int i = 0; i < 3; ++i) {
        const Question asked = ask(2, 2, 3);
        for (const Question& question : {asked, portable(asked)}) {
            auto [job, future] = future_job(question);
            ASSERT_TRUE(batcher->submit(job));
            questions.push_back(question);
            futures.push_back(std::move(future));
        }
    }
    blocker.release();
    for (std::size_t i = 0; i < questions.size(); ++i)
        expect_answer(futures[i], questions[i]);
    EXPECT_EQ(batcher->stats().batches, 3U);  // the blocker, ggml-cpu, portable
}

// Quantised rows of several jobs, of pairs in several pieces.
TEST_F(BatcherTest, ComputesQuantisedRowsTogether) {
    const PieceStore store = open_store(
        {write_slice_of(model_, "c.gguf", {{0, 0, 8}, {4, 0, 3}}), write_slice_of(model_, "d.gguf", {{4, 3, 5}})});
    Blocker blocker;
    auto batcher = make_blocked_batcher(blocker);
    std::vector<Question> questions;
    std::vector<std::future<Answer>> futures;
    for (std::uint32_t rows : {3, 1, 7}) {
        questions.push_back(portable(ask(4, rows, 6)));
        auto promise = std::make_shared<std::promise<Answer>>();
        futures.push_back(promise->get_future());
        ASSERT_TRUE(batcher->submit(
            make_job(store, questions.back(), [promise](Answer answer) { promise->set_value(std::move(answer)); })));
    }
    blocker.release();
    for (std::size_t i = 0; i < questions.size(); ++i)
        expect_answer(futures[i], questions[i]);
    EXPECT_EQ(batcher->stats().batches, 2U);
}

TEST_F(BatcherTest, BoundsABatchsMemory) {
    Blocker blocker;
    auto batcher = make_blocked_batcher(blocker, {.batch_bytes = 2 * 6 * kHidden * sizeof(float)});
    std::vector<std::future<Answer>> futures;
    const Question question = ask(2, 2, 3);
    for (int i = 0; i < 4; ++i) {
        auto [job, future] = future_job(question);
        ASSERT_TRUE(batcher->submit(job));
        futures.push_back(std::move(future));
    }
    blocker.release();
    for (auto& future : futures)
        expect_answer(future, question);
    EXPECT_EQ(batcher->stats().batches, 3U);  // the blocker, two, two
}

TEST_F(BatcherTest, RefusesMoreThanItsQueueHolds) {
    Blocker blocker;
    auto batcher = make_blocked_batcher(blocker, {.jobs = 1});
    auto [first, first_future] = future_job(ask(2, 1, 1));
    auto [second, second_future] = future_job(ask(2, 1, 1));
    EXPECT_TRUE(batcher->submit(first));
    const Status refused = batcher->submit(second);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().kind, ErrorKind::unavailable);
    blocker.release();
    EXPECT_EQ(first_future.wait_for(kLongWait), std::future_status::ready);
}

TEST_F(BatcherTest, OneLargeJobMayWaitAlone) {
    Blocker blocker;
    auto batcher = make_blocked_batcher(blocker, {.bytes = 1});
    const Question question = ask(2, 1, 1);
    auto [first, first_future] = future_job(question);
    auto [second, second_future] = future_job(question);
    EXPECT_TRUE(batcher->submit(first));
    EXPECT_FALSE(batcher->submit(second));
    blocker.release();
    expect_answer(first_future, question);
    ASSERT_TRUE(batcher->wait_idle(kLongWait));
    EXPECT_TRUE(batcher->submit(second));
    expect_answer(second_future, question);
}

TEST_F(BatcherTest, CancelDropsAWaitingJob) {
    Blocker blocker;
    auto batcher = make_blocked_batcher(blocker);
    bool called = false;
    auto dropped = make_job(store_, ask(2, 1, 1), [&](const Answer&) { called = true; });
    const Question question = ask(2, 1, 1);
    auto [kept, future] = future_job(question);
    ASSERT_TRUE(batcher->submit(dropped));
    ASSERT_TRUE(batcher->submit(kept));
    EXPECT_TRUE(batcher->cancel(dropped.get()));
    EXPECT_FALSE(batcher->cancel(dropped.get()));
    blocker.release();
    expect_answer(future, question);
    ASSERT_TRUE(batcher->wait_idle(kLongWait));
    EXPECT_FALSE(called);
    EXPECT_EQ(batcher->stats().jobs, 2U);
}

TEST_F(BatcherTest, StoppingAnswersWhatWaits) {
    Blocker blocker;
    auto batcher = make_blocked_batcher(blocker);
    auto [job, future] = future_job(ask(2, 1, 1));
    ASSERT_TRUE(batcher->submit(job));
    auto stopping = std::async(std::launch::async, [&] { batcher->stop(); });
    ASSERT_EQ(future.wait_for(kLongWait), std::future_status::ready);
    const Answer answered = future.get();
    ASSERT_FALSE(answered);
    EXPECT_EQ(answered.error().kind, ErrorKind::unavailable);
    EXPECT_THAT(answered.error().message, HasSubstr("stopping"));
    blocker.release();
    stopping.get();
    EXPECT_FALSE(batcher->submit(job));
}

TEST_F(BatcherTest, IsNotIdleWhileItAnswers) {
    Blocker blocker;
    auto batcher = make_blocked_batcher(blocker);
    EXPECT_FALSE(batcher->wait_idle(std::chrono::milliseconds(1)));
    blocker.release();
    EXPECT_TRUE(batcher->wait_idle(kLongWait));
}

TEST_F(BatcherTest, ComputesOnTheCallersThreadWhenFree) {
    auto batcher = make_batcher();
    const Question question = ask(0, 4, 6);
    auto [job, future] = future_job(question);
    ASSERT_TRUE(batcher->compute_now(job));
    ASSERT_EQ(future.wait_for(std::chrono::seconds(0)), std::future_status::ready);
    expect_answer(future, question);
    EXPECT_EQ(batcher->stats().jobs, 1U);
}

TEST_F(BatcherTest, LeavesTheCallerAloneWhenBusyOrStopped) {
    Blocker blocker;
    auto batcher = make_blocked_batcher(blocker);
    auto job = make_job(store_, ask(2, 1, 1), [](const Answer&) { FAIL() << "not to be computed"; });
    EXPECT_FALSE(batcher->compute_now(job));
    blocker.release();
    ASSERT_TRUE(batcher->wait_idle(kLongWait));
    batcher->stop();
    EXPECT_FALSE(batcher->compute_now(job));
}

// What is handed over while a caller computes is computed after it, and stopping waits for the caller.
TEST_F(BatcherTest, TheCallersThreadAndItsOwnTakeTurns) {
    Blocker blocker;
    auto batcher = make_batcher();
    auto first = make_job(store_, ask(0, 1, 1), blocker.done());
    auto computing = std::async(std::launch::async, [&] { return batcher->compute_now(first); });
    blocker.wait_until_blocking();
    const Question question = ask(2, 1, 1);
    auto [second, future] = future_job(question);
    ASSERT_TRUE(batcher->submit(second));
    EXPECT_EQ(batcher->waiting(), 1U);
    blocker.release();
    EXPECT_TRUE(computing.get());
    expect_answer(future, question);
}

TEST_F(BatcherTest, OneJobsFailureIsAnAnswer) {
    auto batcher = make_batcher();
    Question impossible = ask(2, 1, 1);
    impossible.recipe.up_bias = true;  // which a session would have refused
    auto [job, future] = future_job(impossible);
    ASSERT_TRUE(batcher->submit(job));
    ASSERT_EQ(future.wait_for(kLongWait), std::future_status::ready);
    EXPECT_FALSE(future.get());
    const Question question = ask(2, 1, 1);
    auto [next, next_future] = future_job(question);
    ASSERT_TRUE(batcher->submit(next));
    expect_answer(next_future, question);
}

}  // namespace
}  // namespace kvasir::worker_test
