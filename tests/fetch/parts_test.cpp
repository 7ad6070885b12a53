// The parts of a download: journal, queue, choice of sources, what a hub says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "fetch/fetch_fixture.h"
#include "fetch/hub_client.h"
#include "fetch/journal.h"
#include "fetch/slab_queue.h"

namespace kvasir::fetch::test {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const Digest kSlice = sha256(std::as_bytes(std::span("slice", 5)));

TEST(JournalTest, TheLastWholeRecordsCount) {
    std::mt19937_64 random(5);
    for (int round = 0; round < 300; ++round) {
        ByteVector bytes = journal_header(kSlice);
        std::vector<Arrived> states(1);
        for (std::uint64_t n = random() % 20; n > 0; --n) {
            const std::uint64_t target = random() % 5;
            const std::uint64_t arrived = random();
            const ByteVector record = journal_record(kSlice, target, arrived);
            ASSERT_EQ(record.size(), kJournalRecordBytes);
            bytes.insert(bytes.end(), record.begin(), record.end());
            Arrived next = states.back();
            next[target] = arrived;
            states.push_back(std::move(next));
        }
        // Cut anywhere: the whole records before count.
        const std::size_t cut = random() % (bytes.size() + 1);
        JournalContents contents = parse_journal(ByteSpan(bytes).first(cut), kSlice);
        if (cut < kJournalHeaderBytes) {
            EXPECT_EQ(contents.good_bytes, 0U);
            continue;
        }
        const std::size_t whole = (cut - kJournalHeaderBytes) / kJournalRecordBytes;
        EXPECT_EQ(contents.arrived, states[whole]);
        EXPECT_EQ(contents.good_bytes, kJournalHeaderBytes + whole * kJournalRecordBytes);
        // A flipped bit ends it at its record.
        const std::size_t flipped = random() % bytes.size();
        bytes[flipped] ^= std::byte{1} << (random() % 8);
        contents = parse_journal(bytes, kSlice);
        if (flipped < kJournalHeaderBytes) {
            EXPECT_EQ(contents.good_bytes, 0U);
        } else {
            EXPECT_EQ(contents.arrived, states[(flipped - kJournalHeaderBytes) / kJournalRecordBytes]);
        }
    }
    EXPECT_EQ(parse_journal(journal_header(Digest{}), kSlice).good_bytes, 0U);
}

class QueueTest : public FetchTest {};

TEST_F(QueueTest, EveryByteIsHandedOutOnceInStretchesWithoutGaps) {
    small_model();
    std::mt19937_64 random(6);
    for (int round = 0; round < 100; ++round) {
        const FetchPlan plan = make_plan(manifest_, {{0, 1, 3}, {1, 0, 8}, {2, 6, 2}}).value();
        SlabQueue queue(plan);
        std::vector<std::uint64_t> had(plan.slabs.size());
        for (std::size_t i = 0; i < had.size(); ++i) {
            if (random() % 4 == 0) had[i] = random() % (plan.slabs[i].bytes + 1);
            queue.set_arrived(i, had[i]);
        }
        std::vector<int> handed(plan.slabs.size());
        const std::uint64_t most = 1 + random() % (8 * plan.slabs[0].bytes);
        while (!queue.empty()) {
            const std::uint64_t before = queue.missing_bytes();
            const Stretch stretch = queue.take(most).value();
            EXPECT_EQ(queue.missing_bytes(), before - stretch.bytes);
            std::uint64_t bytes = 0;
            std::uint64_t next = stretch.offset;
            for (std::size_t i = stretch.first; i < stretch.first + stretch.count; ++i) {
                const std::uint64_t begin = i == stretch.first ? had[i] : 0;
                EXPECT_EQ(plan.slabs[i].offset + begin, next);
                EXPECT_EQ(plan.slabs[i].file, stretch.file);
                bytes += plan.slabs[i].bytes - begin;
                next = plan.slabs[i].offset + plan.slabs[i].bytes;
                ++handed[i];
            }
            EXPECT_EQ(bytes, stretch.bytes);
            EXPECT_TRUE(stretch.count == 1 || bytes <= most);
            if (random() % 3 == 0) {
                queue.give_back(stretch.first);
                --handed[stretch.first];
            }
        }
        EXPECT_EQ(queue.missing_bytes(), 0U);
        EXPECT_FALSE(queue.take(most));
        for (std::size_t i = 0; i < handed.size(); ++i)
            EXPECT_EQ(handed[i], had[i] == plan.slabs[i].bytes ? 0 : 1);
    }
}

class BookTest : public ::testing::Test {
  protected:
    static std::vector<Source> three() {
        std::vector<Source> sources;
        for (const char* url : {"http://a/", "http://b/", "http://c/"})
            sources.push_back({http::parse_url(url).value(), std::nullopt, {}});
        return sources;
    }
    SourceBook book_{three()};
    SourceBook::Clock::time_point now_ = SourceBook::Clock::now();
};

TEST_F(BookTest, WorkIsSpread) {
    for (std::size_t expected : {0U, 1U, 2U, 0U}) {
        EXPECT_EQ(book_.choose(now_, 4), expected);
        book_.begin(expected);
    }
}

TEST_F(BookTest, TheFasterOfEquallyBusyIsAsked) {
    for (std::size_t source : {0U, 1U, 2U}) {
        book_.begin(source);
        book_.succeeded(source, 1000 * (source + 1), seconds(1));
    }
    EXPECT_EQ(book_.choose(now_, 4), 2U);
}

TEST_F(BookTest, AMuchSlowerOneOnlyHelpsWhenTheFastestIsBusy) {
    book_.begin(2);
    book_.drop(2, "gone");
    book_.begin(0);
    book_.succeeded(0, 1'000'000, seconds(1));
    book_.begin(1);
    book_.succeeded(1, 1000, seconds(1));
    book_.begin(0);
    EXPECT_EQ(book_.choose(now_, 2), 0U);
    book_.begin(0);
    EXPECT_EQ(book_.choose(now_, 2), 1U);
}

TEST_F(BookTest, FailuresCostTimeAndLiesEverything) {
    book_.begin(0);
    book_.drop(0, "http://a/: lied");
    book_.begin(1);
    book_.failed(1, "http://b/: away", now_);
    EXPECT_EQ(book_.choose(now_, 4), 2U);
    book_.begin(2);
    book_.failed(2, "http://c/: away", now_, seconds(30));
    EXPECT_EQ(book_.choose(now_, 4), std::nullopt);
    EXPECT_EQ(book_.next_chance(), now_ + seconds(1));
    EXPECT_EQ(book_.choose(now_ + seconds(1), 4), 1U);
    for (int i = 0; i < 20; ++i) {
        book_.begin(1);
        book_.failed(1, "http://b/: away", now_);
    }
    EXPECT_EQ(book_.choose(now_ + seconds(59), 4), 2U);
    book_.begin(2);
    EXPECT_EQ(book_.choose(now_ + seconds(60), 4), 1U);
    EXPECT_EQ(book_.troubles(), "http://a/: lied; http://b/: away; http://c/: away");
    for (std::size_t source : {1U, 2U}) {
        book_.begin(source);
        book_.drop(source, "lied");
    }
    EXPECT_EQ(book_.next_chance(), std::nullopt);
}

TEST(Sources, HubFirstThenNamedThenMirrorsEachOnce) {
    Manifest manifest;
    manifest.mirrors = {"http://m/x", "no url", "http://named/", "http://m/x"};
    manifest.files = {{"a b.gguf", 1}};
    const Source hub{http::parse_url("https://hub/").value(), kSlice, {"ca.pem", {}}};
    const Source named{http::parse_url("http://named/").value(), std::nullopt, {}};
    const std::vector<Source> sources = sources_of(manifest, hub, {named});
    ASSERT_EQ(sources.size(), 3U);
    EXPECT_EQ(sources[0].file(manifest, 0).text(), "https://hub/v1/models/" + to_hex(kSlice) + "/files/0");
    EXPECT_EQ(sources[1].file(manifest, 0).text(), "http://named/a%20b.gguf");
    EXPECT_EQ(sources[2].file(manifest, 0).text(), "http://m/x/a%20b.gguf");
    EXPECT_EQ(sources[2].trust.ca_file, "ca.pem");
}

TEST(Catalogues, AreReadWithoutTrust) {
    const std::string id(64, 'a');
    const std::string good =
        R"({"models":[{"id":")" + id + R"(","name":"n","architecture":"x","files":[{"name":"f"}]}]})";
    const auto entries = parse_catalogue(good);
    ASSERT_TRUE(entries) << entries.error().message;
    EXPECT_EQ(entries->at(0).name, "n");
    EXPECT_THAT(entries->at(0).files, ElementsAre("f"));
    EXPECT_TRUE(parse_catalogue(R"({"models":[]})")->empty());
    for (const std::string& bad :
         {std::string(), std::string("[]"), std::string("{}"), std::string(R"({"models":[1]})"),
          std::string(R"({"models":[{"id":"xyz","name":"n","architecture":"x","files":[]}]})"),
          R"({"models":[{"id":")" + id + R"(","name":7,"architecture":"x","files":[]}]})",
          R"({"models":[{"id":")" + id + R"(","name":")" + std::string(2000, 'n') +
              R"(","architecture":"x","files":[]}]})",
          std::string(100'000, '['), R"({"models":)" + std::string(20, '[') + std::string(20, ']') + "}"}) {
        const auto refused = parse_catalogue(bad);
        ASSERT_FALSE(refused) << bad.substr(0, 100);
        EXPECT_EQ(refused.error().kind, ErrorKind::invalid);
    }
}

TEST(HubAddresses, MayCarryAPin) {
    const HubAddress hub = parse_hub("https://h:1#" + std::string(64, 'a')).value();
    EXPECT_EQ(hub.url.text(), "https://h:1/");
    EXPECT_TRUE(hub.trust.pin);
    EXPECT_FALSE(parse_hub("http://h")->trust.pin);
    for (const std::string& bad : {std::string("http://h/path"), "http://h#" + std::string(64, 'a'),
                                   std::string("https://h#abc"), std::string("h:1"), std::string("")}) {
        EXPECT_EQ(parse_hub(bad).error().kind, ErrorKind::usage) << bad;
    }
}

}  // namespace
}  // namespace kvasir::fetch::test
