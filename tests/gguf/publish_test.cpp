#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <random>
#include <set>

#include "gguf/model_fixture.h"
#include "gguf/slice.h"

namespace kvasir {
namespace {

using testing::DirectoryTest;
using ::testing::ElementsAre;
using testing::flip_bit;
using ::testing::HasSubstr;
using testing::OpenModel;
using testing::read_bytes;
using testing::real_model;
using testing::write_bytes;

constexpr std::size_t kJournalHeader = 40;
constexpr std::size_t kJournalRecord = 44;

class PublishTest : public DirectoryTest {
  protected:
    // Publishes with a journal, which publish() leaves in place.
    PublishReport publish_with_journal(const OpenModel& model) {
        PublishOptions options{.threads = 2, .quiet = true, .journal = journal()};
        Result<PublishReport> report = publish(model.model, model.map, options);
        EXPECT_TRUE(report) << report.error().message;
        return report.value();
    }
    std::filesystem::path journal() const { return path("journal.part"); }
};

TEST_F(PublishTest, HashesEverySlabOfTheRealModel) {
    OpenModel model(real_model());
    Manifest manifest = model.publish();
    std::set<Digest> different;
    for (const ExpertLayer& layer : model.map.layers) {
        for (const ExpertTensor& tensor : layer.tensors) {
            const ManifestTensor* listed = manifest.find(layer.layer)->find(tensor.role);
            ASSERT_EQ(listed->slabs.size(), layer.experts);
            for (std::uint32_t expert = 0; expert < layer.experts; ++expert) {
                ASSERT_EQ(listed->slabs[expert], sha256(model.slab(layer.layer, tensor.role, expert)));
                different.insert(listed->slabs[expert]);
            }
        }
    }
    EXPECT_EQ(different.size(), 576U);
    for (int threads : {0, 1, 7})
        EXPECT_EQ(model.publish(threads).model_id(), manifest.model_id());
}

TEST_F(PublishTest, GivesSplitAndUnsplitFormsOneId) {
    OpenModel whole(write_tiny("tiny.gguf"));
    OpenModel split(write_tiny_split());
    Manifest manifest = split.publish();
    EXPECT_EQ(manifest.model_id(), whole.publish().model_id());
    EXPECT_EQ(manifest.files.size(), 2U);
    EXPECT_EQ(manifest.layers.at(1).tensors.at(0).file, 1U);
    EXPECT_FALSE(matches(whole.publish(), split.map)) << "the place of the slabs differs";
}

TEST_F(PublishTest, OneBitInOneExpertIsAnotherModel) {
    OpenModel before(write_tiny("tiny.gguf"));
    Manifest manifest = before.publish();
    const ExpertTensor& tensor = *before.map.find(1)->find(Role::up);
    flip_bit(path("tiny.gguf"), tensor.slab_offset(2) + 7);
    OpenModel after(path("tiny.gguf"));
    EXPECT_NE(after.publish().model_id(), manifest.model_id());
    Result<std::uint64_t> checked = check_slice(path("tiny.gguf"), &manifest, true);
    ASSERT_FALSE(checked);
    EXPECT_EQ(checked.error().kind, ErrorKind::invalid);
    EXPECT_THAT(checked.error().message, HasSubstr("tiny.gguf: blk.1.ffn_up_exps.weight, expert 2: damaged"));
}

TEST_F(PublishTest, DensePartIsNotPartOfTheId) {
    OpenModel before(write_tiny("tiny.gguf"));
    Digest id = before.publish().model_id();
    flip_bit(path("tiny.gguf"), before.model.find("token_embd.weight")->offset);
    EXPECT_EQ(OpenModel(path("tiny.gguf")).publish().model_id(), id);
}

TEST_F(PublishTest, WritesTheManifestAndNothingElse) {
    OpenModel model(write_tiny("tiny.gguf"));
    std::filesystem::path out = manifest_path(path("tiny.gguf"));
    Result<PublishReport> report = publish_to(out, model.model, model.map, {.threads = 2, .quiet = true});
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_THAT(list(), ElementsAre("tiny.gguf", "tiny.gguf.kvasir.json"));
    EXPECT_EQ(load_manifest(out).value().model_id(), report->manifest.model_id());
    EXPECT_EQ(report->hashed_bytes, model.map.expert_bytes);
}

TEST_F(PublishTest, ResumesFromAJournalCutAnywhere) {
    OpenModel model(write_tiny("tiny.gguf"));
    std::string whole = to_json(publish_with_journal(model).manifest);
    ByteVector full = read_bytes(journal());
    ASSERT_EQ(full.size(), kJournalHeader + 24 * kJournalRecord);
    const std::uint64_t slab = 64 * 34;
    std::mt19937 random(7);
    for (int i = 0; i < 100; ++i) {
        std::size_t kept = random() % (full.size() + 1);
        write_bytes(journal(), ByteSpan(full).first(kept));
        PublishReport report = publish_with_journal(model);
        EXPECT_EQ(to_json(report.manifest), whole);
        std::uint64_t records = kept < kJournalHeader ? 0 : (kept - kJournalHeader) / kJournalRecord;
        EXPECT_EQ(report.resumed_bytes, records * slab);
        EXPECT_EQ(report.hashed_bytes, (24 - records) * slab);
        EXPECT_EQ(read_bytes(journal()).size(), full.size());
    }
}

TEST_F(PublishTest, DistrustsADamagedJournal) {
    OpenModel model(write_tiny("tiny.gguf"));
    std::string whole = to_json(publish_with_journal(model).manifest);
    ByteVector full = read_bytes(journal());
    for (std::size_t at = 0; at < full.size(); at += 13) {
        write_bytes(journal(), full);
        flip_bit(journal(), at);
        PublishReport report = publish_with_journal(model);
        EXPECT_EQ(to_json(report.manifest), whole) << "after a flipped bit in byte " << at;
        EXPECT_GT(report.hashed_bytes, 0U);
    }
    // What a lost cache leaves after a power cut: the right length, but zeros.
    std::fill(full.begin() + 500, full.end(), std::byte{0});
    write_bytes(journal(), full);
    EXPECT_EQ(publish_with_journal(model).resumed_bytes, (500 - kJournalHeader) / kJournalRecord * 64 * 34);
}

TEST_F(PublishTest, StartsOverWhenTheModelHasChanged) {
    OpenModel model(write_tiny("tiny.gguf"));
    publish_with_journal(model);
    auto time = std::filesystem::last_write_time(path("tiny.gguf"));
    std::filesystem::last_write_time(path("tiny.gguf"), time + std::chrono::seconds(2));
    PublishReport report = publish_with_journal(model);
    EXPECT_EQ(report.resumed_bytes, 0U);
    EXPECT_EQ(report.hashed_bytes, model.map.expert_bytes);
}

TEST_F(PublishTest, RefusesASecondRunAtTheSameTime) {
    OpenModel model(write_tiny("tiny.gguf"));
    File held(::open(journal().c_str(), O_RDWR | O_CREAT, 0666));
    ASSERT_EQ(::flock(held.descriptor(), LOCK_EX), 0);
    Result<PublishReport> report = publish(model.model, model.map, {.threads = 1, .quiet = true, .journal = journal()});
    ASSERT_FALSE(report);
    EXPECT_EQ(report.error().kind, ErrorKind::unavailable);
    EXPECT_THAT(report.error().message, HasSubstr("another process is publishing"));
}

TEST_F(PublishTest, RefusesWhatCannotBePublished) {
    auto refusal = [&](const GgufModel& model, const ExpertMap& map) {
        Result<PublishReport> report = publish(model, map, {.threads = 1, .quiet = true});
        return report ? Error{ErrorKind::internal, "accepted"} : report.error();
    };
    write_bytes(path("dense.gguf"), testing::tiny_moe_metadata({}).tensor("token_embd.weight", 0, {64, 8}).build());
    OpenModel dense(path("dense.gguf"));
    EXPECT_EQ(refusal(dense.model, dense.map).kind, ErrorKind::unsupported);
    EXPECT_THAT(refusal(dense.model, dense.map).message, HasSubstr("dense.gguf: a dense model"));

    write_bytes(path("header.gguf"), testing::tiny_moe().header());
    GgufModel header = GgufModel::open(path("header.gguf"), GgufLength::any).value();
    EXPECT_THAT(refusal(header, map_experts(header).value()).message, HasSubstr("header.gguf: only a header"));

    OpenModel whole(write_tiny("tiny.gguf"));
    ASSERT_TRUE(write_slice(whole.model, whole.map, nullptr, {{0, 0, 2}}, path("slice.gguf"), true));
    OpenModel slice(path("slice.gguf"));
    EXPECT_THAT(refusal(slice.model, slice.map).message, HasSubstr("slice.gguf: is a slice"));
}

TEST_F(PublishTest, FailsBeforeHashingWhereItCannotWrite) {
    OpenModel model(write_tiny("tiny.gguf"));
    for (const std::filesystem::path& out : {path(""), path("missing/m.json")}) {
        Result<PublishReport> report = publish_to(out, model.model, model.map, {.threads = 1, .quiet = true});
        ASSERT_FALSE(report) << out;
        EXPECT_THAT(report.error().message, HasSubstr(out.string()));
    }
    EXPECT_THAT(list(), ElementsAre("tiny.gguf"));
}

TEST_F(PublishTest, NamesAFileThatShrankMeanwhile) {
    OpenModel model(write_tiny("tiny.gguf"));
    std::filesystem::resize_file(path("tiny.gguf"), 20'000);
    Result<PublishReport> report = publish(model.model, model.map, {.threads = 2, .quiet = true});
    ASSERT_FALSE(report);
    EXPECT_EQ(report.error().kind, ErrorKind::invalid);
    EXPECT_THAT(report.error().message, HasSubstr("tiny.gguf: the file ends"));
}

}  // namespace
}  // namespace kvasir
