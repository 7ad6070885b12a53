#include "backbone/auditor.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <set>

namespace kvasir {
namespace {

using testing::HasSubstr;

constexpr std::chrono::seconds kPatience{60};

// Every expert's output is its number, in every column.
class Numbers final : public AuditReference {
  public:
    explicit Numbers(bool intact = true) : intact_(intact) {}
    Status compute(const AuditQuestion& question, std::span<float> out) override {
        std::ranges::fill(out, static_cast<float>(question.expert));
        return {};
    }
    Status check_weights(std::uint32_t /*layer*/, std::uint32_t expert) override {
        checked_ = true;
        if (intact_) return {};
        return fail(ErrorKind::mismatch, "expert {} is damaged", expert);
    }
    bool checked() const { return checked_; }

  private:
    const bool intact_;
    std::atomic<bool> checked_ = false;
};

class Worker final : public AuditSubject {
  public:
    void acquitted(std::uint64_t stamp) override {
        std::scoped_lock lock(mutex_);
        stamps_.push_back(stamp);
        changed_.notify_all();
    }
    void convicted(const std::string& what) override {
        std::scoped_lock lock(mutex_);
        verdict_ = what;
        changed_.notify_all();
    }
    bool wait_for(std::size_t acquittals) {
        std::unique_lock lock(mutex_);
        return changed_.wait_for(lock, kPatience, [&] { return stamps_.size() >= acquittals; });
    }
    std::string wait_for_conviction() {
        std::unique_lock lock(mutex_);
        changed_.wait_for(lock, kPatience, [&] { return !verdict_.empty(); });
        return verdict_;
    }
    std::string verdict() {
        std::scoped_lock lock(mutex_);
        return verdict_;
    }
    std::vector<std::uint64_t> stamps() {
        std::scoped_lock lock(mutex_);
        return stamps_;
    }

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<std::uint64_t> stamps_;
    std::string verdict_;
};

// All of a core, so that no test waits for the budget.
AuditBudget unlimited() {
    AuditBudget budget;
    budget.compute = 1;
    return budget;
}

AuditQuestion question(std::uint32_t expert) {
    AuditQuestion asked;
    asked.layer = 3;
    asked.expert = expert;
    asked.hidden = 4;
    return asked;
}

TEST(AuditShare, FallsWithCleanAuditsAndNeverToZero) {
    const AuditBudget budget;
    EXPECT_EQ(audit_share(budget, 0), 0.25);
    EXPECT_DOUBLE_EQ(audit_share(budget, 32), 0.125);
    EXPECT_EQ(audit_share(budget, 1'000'000), 1.0 / 256);
}

TEST(Auditor, ChoosesNoMoreThanAllowedAndNoPairTwice) {
    Auditor auditor(std::make_shared<Numbers>(), unlimited());
    EXPECT_TRUE(auditor.choose(100, 0, 4).empty());
    EXPECT_TRUE(auditor.choose(0, 1, 4).empty());
    EXPECT_THAT(auditor.choose(3, 1, 4), testing::UnorderedElementsAre(0, 1, 2));
    const std::vector<std::uint32_t> chosen = auditor.choose(1000, 1, 4);
    EXPECT_EQ(std::set<std::uint32_t>(chosen.begin(), chosen.end()).size(), 4U);
}

// A worker that lies at the end of long requests only is found like any other.
TEST(Auditor, TheEndOfALongRequestIsChosenAsOftenAsItsBeginning) {
    Auditor auditor(std::make_shared<Numbers>(), unlimited());
    constexpr int kRequests = 2000;
    int last_half = 0;
    for (int i = 0; i < kRequests; ++i) {
        for (std::uint32_t pair : auditor.choose(512, 0.25, 4))
            last_half += pair >= 256 ? 1 : 0;
    }
    // 8,000 even chances: the standard deviation is 45.
    EXPECT_NEAR(last_half, kRequests * 2, 400);
}

// With a share p, a liar in a fraction f of its rows is caught after 1 / (p f) rows on average.
TEST(Auditor, CatchesALiarAsSoonAsTheFormulaSays) {
    constexpr double kShare = 0.125;
    constexpr std::uint32_t kEvery = 4;  // f = 1/4
    constexpr int kWorkers = 2000;
    Auditor auditor(std::make_shared<Numbers>(), unlimited());
    double rows = 0;
    for (int worker = 0; worker < kWorkers; ++worker) {
        for (bool caught = false; !caught;) {
            const std::vector<std::uint32_t> audited = auditor.choose(8, kShare, 8);
            caught = std::ranges::any_of(audited, [](std::uint32_t pair) { return pair % kEvery == 0; });
            rows += 8;
        }
    }
    // In requests of eight with two lies: 8 / (1 - (1 - p)^2) = 34.1 rows; the mean's standard deviation is 0.7.
    EXPECT_NEAR(rows / kWorkers, 34.1, 5);
}

TEST(Auditor, RightAnswersAcquitWithTheirStamps) {
    auto worker = std::make_shared<Worker>();
    Auditor auditor(std::make_shared<Numbers>(), unlimited());
    auditor.submit(question(5), {5, 5, 5, 5}, worker, 17);
    auditor.submit(question(6), {6, 6, 6, 6}, worker, 18);
    ASSERT_TRUE(worker->wait_for(2));
    EXPECT_THAT(worker->stamps(), testing::ElementsAre(17, 18));
    EXPECT_EQ(worker->verdict(), "");
}

TEST(Auditor, OneWrongBitConvicts) {
    auto worker = std::make_shared<Worker>();
    Auditor auditor(std::make_shared<Numbers>(), unlimited());
    auditor.submit(question(5), {5, 5, std::nextafter(5.0F, 6.0F), 5}, worker, 0);
    EXPECT_THAT(worker->wait_for_conviction(), HasSubstr("layer 3, expert 5: 1 of 4 values"));
}

TEST(Auditor, NegativeZeroIsNotZero) {
    auto worker = std::make_shared<Worker>();
    Auditor auditor(std::make_shared<Numbers>(), unlimited());
    auditor.submit(question(0), {0, -0.0F, 0, 0}, worker, 0);
    EXPECT_THAT(worker->wait_for_conviction(), HasSubstr("1 of 4 values"));
}

// Who computes with damaged weights has nobody to judge.
TEST(Auditor, DamagedWeightsOfItsOwnConvictNobody) {
    auto worker = std::make_shared<Worker>();
    auto damaged = std::make_shared<Numbers>(false);
    Auditor auditor(damaged, unlimited());
    auditor.submit(question(5), {6, 6, 6, 6}, worker, 0);
    auditor.submit(question(7), {7, 7, 7, 7}, worker, 1);
    ASSERT_TRUE(worker->wait_for(1));
    EXPECT_TRUE(damaged->checked());
    EXPECT_EQ(worker->verdict(), "");
}

TEST(Auditor, AWorkerThatIsGoneIsNotWaitedFor) {
    auto worker = std::make_shared<Worker>();
    Auditor auditor(std::make_shared<Numbers>(), unlimited());
    auditor.submit(question(5), {6, 6, 6, 6}, std::weak_ptr<AuditSubject>(), 0);
    auditor.submit(question(5), {5, 5, 5, 5}, worker, 1);
    EXPECT_TRUE(worker->wait_for(1));
}

}  // namespace
}  // namespace kvasir
