#include "worker/piece_store.h"

#include <gmock/gmock.h>

#include "worker/worker_fixture.h"

namespace kvasir::worker_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using PieceStoreTest = WorkerTest;

TEST_F(PieceStoreTest, FindsExpertsOfSeveralOverlappingSlices) {
    const auto a = write_slice_of(model_, "a.gguf", {{0, 0, 4}, {0, 6, 2}});
    const auto b = write_slice_of(model_, "b.gguf", {{0, 3, 2}, {2, 0, 8}});
    const PieceStore store = open_store({b, a});
    EXPECT_EQ(store.epoch(), kEpoch);
    EXPECT_THAT(store.pieces(), ElementsAre(Piece{0, 0, 5}, Piece{0, 6, 2}, Piece{2, 0, 8}));
    EXPECT_EQ(store.expert_count(), 15U);
    EXPECT_EQ(store.weight_bytes(), 16 * 3 * kHidden * kFf * sizeof(float));
    EXPECT_TRUE(store.holds_layer(2));
    EXPECT_FALSE(store.holds_layer(1));
    EXPECT_FALSE(store.find(0, 5));
    EXPECT_FALSE(store.find(1, 0));
    EXPECT_FALSE(store.find(0, UINT32_MAX));
    const auto place = store.find(0, 7);
    ASSERT_TRUE(place);
    EXPECT_EQ(place->held->piece, (Piece{0, 6, 2}));
    EXPECT_EQ(place->local, 1U);
}

TEST_F(PieceStoreTest, HoldsTheModelsBytes) {
    const PieceStore store = open_store({write_slice_of(model_, "a.gguf", {{2, 5, 2}})});
    const PieceStore whole = open_store({model_});
    const auto part = store.find(2, 6);
    const auto origin = whole.find(2, 6);
    ASSERT_TRUE(part && origin);
    const std::size_t bytes = std::size_t{kHidden} * kFf * sizeof(float);
    for (Role role : {Role::gate, Role::up, Role::down}) {
        const std::byte* left = (*part->held).weights[role]->data + part->local * bytes;
        const std::byte* right = (*origin->held).weights[role]->data + origin->local * bytes;
        EXPECT_EQ(std::memcmp(left, right, bytes), 0) << role_name(role);
    }
}

TEST_F(PieceStoreTest, ServesAWholePublishedModel) {
    EXPECT_EQ(open_store({model_}).expert_count(), 24U);
}

TEST_F(PieceStoreTest, RefusesSlicesOfDifferentModels) {
    const auto other = write_model("other.gguf", 2);
    const std::vector<std::filesystem::path> slices = {write_slice_of(model_, "a.gguf", {{0, 0, 4}}),
                                                       write_slice_of(other, "b.gguf", {{0, 4, 4}})};
    const Result<PieceStore> store = PieceStore::open(slices, 1);
    ASSERT_FALSE(store);
    EXPECT_EQ(store.error().kind, ErrorKind::usage);
    EXPECT_THAT(store.error().message, HasSubstr("one worker serves one model"));
    EXPECT_THAT(store.error().message, HasSubstr("b.gguf"));
}

TEST_F(PieceStoreTest, RefusesASliceWithoutModelId) {
    const auto unpublished = write_model("unpublished.gguf", 2, false);
    const std::vector<std::filesystem::path> slices = {write_slice_of(unpublished, "a.gguf", {{0, 0, 4}})};
    const Result<PieceStore> store = PieceStore::open(slices, 1);
    ASSERT_FALSE(store);
    EXPECT_THAT(store.error().message, HasSubstr("kvasir publish"));
}

TEST_F(PieceStoreTest, RefusesNothingMissingAndDamaged) {
    EXPECT_FALSE(PieceStore::open({}, 1));
    const std::vector<std::filesystem::path> missing = {path("missing.gguf")};
    EXPECT_THAT(PieceStore::open(missing, 1).error().message, HasSubstr("missing.gguf"));
    const auto cut = write_slice_of(model_, "cut.gguf", {{0, 0, 4}});
    std::filesystem::resize_file(cut, std::filesystem::file_size(cut) - 100);
    const std::vector<std::filesystem::path> damaged = {cut};
    EXPECT_EQ(PieceStore::open(damaged, 1).error().kind, ErrorKind::invalid);
}

}  // namespace
}  // namespace kvasir::worker_test
