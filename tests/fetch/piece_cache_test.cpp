#include "fetch/piece_cache.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "fetch/fetch_fixture.h"
#include "fetch/plan.h"

namespace kvasir::fetch::test {
namespace {

using ::testing::HasSubstr;

class PieceCacheTest : public FetchTest {
  protected:
    PieceCacheTest() {
        small_model();
        mirror_.emplace(models());
        const Piece one{0, 0, 2};
        size_ = make_plan(manifest_, {one})->size;
    }
    PieceCache open(std::uint64_t quota) const { return PieceCache::open(path("pieces"), quota).value(); }
    Result<PieceCache::Fetched> ensure(PieceCache& cache, const Piece& piece, const std::vector<Piece>& leased = {}) {
        return cache.ensure(manifest_, piece, leased, {mirror_->source()}, options_);
    }
    static std::vector<Piece> pieces_of(const PieceCache& cache) {
        std::vector<Piece> pieces;
        const std::vector<CachedPiece> list = cache.list().value();
        for (const CachedPiece& cached : list)
            pieces.push_back(cached.piece);
        return pieces;
    }
    // As if it had last been asked for so many seconds after the epoch.
    static void age(const std::filesystem::path& file, long second) {
        const timespec times[2] = {{second, 0}, {second, 0}};
        ASSERT_EQ(::utimensat(AT_FDCWD, file.c_str(), times, 0), 0);
    }

    std::optional<Mirror> mirror_;
    std::uint64_t size_ = 0;  // of a slice of two experts
};

TEST_F(PieceCacheTest, KeepsWhatItHas) {
    const Piece piece{1, 3, 2};
    {
        PieceCache cache = open(0);
        const auto fetched = ensure(cache, piece).value();
        EXPECT_GT(fetched.report.moved_bytes, 0U);
        EXPECT_TRUE(read_bytes(fetched.path) == expected({piece}));
        ASSERT_TRUE(cache.keep(manifest_));
    }
    const std::uint64_t requests = mirror_->stats().requests;
    PieceCache cache = open(0);
    EXPECT_EQ(ensure(cache, piece)->report.moved_bytes, 0U);
    EXPECT_EQ(mirror_->stats().requests, requests);
    EXPECT_EQ(pieces_of(cache), std::vector<Piece>{piece});
    EXPECT_EQ(cache.kept_manifest(manifest_.model_id())->model_id(), manifest_.model_id());
    EXPECT_FALSE(cache.kept_manifest(Digest{}));
}

TEST_F(PieceCacheTest, StaysWithinItsQuotaTheLongestUnusedGoesFirst) {
    PieceCache cache = open(3 * size_);
    const std::vector<Piece> all = {{0, 0, 2}, {0, 4, 2}, {1, 0, 2}, {2, 0, 2}};
    for (std::size_t i = 0; i < 3; ++i)
        age(ensure(cache, all[i])->path, 1000 + static_cast<long>(i));
    // The first was used again, so the second is the oldest; the third is leased.
    age(ensure(cache, all[0])->path, 2000);
    ASSERT_TRUE(ensure(cache, all[3], {all[2]}));
    EXPECT_EQ(pieces_of(cache), (std::vector<Piece>{all[2], all[0], all[3]}));
}

TEST_F(PieceCacheTest, WhatIsLeasedIsNeverDeleted) {
    PieceCache cache = open(2 * size_);
    const std::vector<Piece> leased = {{0, 0, 2}, {1, 0, 2}};
    for (const Piece& piece : leased)
        ASSERT_TRUE(ensure(cache, piece, leased));
    const auto refused = ensure(cache, {2, 0, 2}, leased);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().kind, ErrorKind::io);
    EXPECT_THAT(refused.error().message, HasSubstr("quota"));
    EXPECT_EQ(pieces_of(cache).size(), 2U);
    EXPECT_FALSE(ensure(cache, {2, 0, 8}, {}));  // larger than everything there is room for
    EXPECT_EQ(pieces_of(cache).size(), 2U);
    EXPECT_EQ(cache.evict(manifest_.model_id(), {leased[0]}).value(), size_);
    EXPECT_EQ(pieces_of(cache), std::vector<Piece>{leased[0]});
}

TEST_F(PieceCacheTest, AbandonedDownloadsCountAndGo) {
    PieceCache cache = open(2 * size_);
    const auto part = path("pieces") / to_hex(manifest_.model_id()) / "0-0-2.gguf.part";
    std::filesystem::create_directories(part.parent_path());
    kvasir::testing::write_bytes(part, ByteVector(2 * size_, std::byte{1}));
    ASSERT_EQ(cache.list()->size(), 1U);
    EXPECT_FALSE(cache.list()->front().complete);
    ASSERT_TRUE(ensure(cache, {1, 0, 2}));
    EXPECT_FALSE(std::filesystem::exists(part));
}

TEST_F(PieceCacheTest, StrangersFilesAreLeftAlone) {
    PieceCache cache = open(2 * size_);
    const auto directory = path("pieces") / to_hex(manifest_.model_id());
    std::filesystem::create_directories(directory);
    for (const char* name : {"notes.txt", "1-2.gguf", "01-2-3.gguf", "1-2-0.gguf", "1-2-3.gguf.bak"})
        kvasir::testing::write_bytes(directory / name, ByteVector(10));
    EXPECT_TRUE(cache.list()->empty());
    ASSERT_TRUE(cache.evict(Digest{}, {}));
    EXPECT_TRUE(std::filesystem::exists(directory / "notes.txt"));
}

TEST_F(PieceCacheTest, OneProcessAtATime) {
    const PieceCache cache = open(0);
    const auto second = PieceCache::open(path("pieces"), 0);
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().kind, ErrorKind::unavailable);
}

}  // namespace
}  // namespace kvasir::fetch::test
