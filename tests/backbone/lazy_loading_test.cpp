#include "backbone/lazy_loading.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <vector>

#include "backbone/memory_budget.h"
#include "base/files.h"
#include "base/temp_directory.h"

namespace kvasir {
namespace {

constexpr std::size_t kBytes = 1 << 20;

class LazyLoadingTest : public ::testing::Test {
  protected:
    LazyLoadingTest() {
        std::string text(kBytes, 'x');
        EXPECT_TRUE(write_text_file(directory_.path() / "weights", text));
        file_ = MappedFile::open(directory_.path() / "weights").value();
    }
    std::size_t resident_pages(std::size_t begin, std::size_t end) const {
        auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
        std::vector<unsigned char> pages((end - begin) / page);
        auto* address = const_cast<std::byte*>(file_.bytes().data()) + begin;
        EXPECT_EQ(mincore(address, end - begin, pages.data()), 0);
        std::size_t count = 0;
        for (unsigned char page_state : pages)
            count += page_state & 1U;
        return count;
    }
    TempDirectory directory_ = TempDirectory::create("kvasir-test").value();
    MappedFile file_;
};

TEST_F(LazyLoadingTest, LeavesTheBytesAlone) {
    // Unaligned ranges, the last slab ending with the file: advice must not reach beyond what is mapped.
    advise_experts(file_.bytes().data() + 100, kBytes - 100);
    std::array<std::uint32_t, 3> experts = {0, 5, 7};
    SlabPrefetcher::prefetch(file_.bytes().data(), kBytes / 8, experts);
    SlabPrefetcher::prefetch(file_.bytes().data() + 32, (kBytes - 32) / 8, experts);
    for (std::byte value : file_.bytes())
        ASSERT_EQ(value, std::byte{'x'});
    EXPECT_EQ(resident_pages(0, kBytes), kBytes / static_cast<std::size_t>(sysconf(_SC_PAGESIZE)));
}

TEST_F(LazyLoadingTest, IgnoresWhatIsSmallerThanAPage) {
    advise_experts(file_.bytes().data() + 10, 20);
    advise_experts(file_.bytes().data(), 0);
}

TEST(SlabPrefetcherTest, RestsOnceNothingIsReadFromDisk) {
    SlabPrefetcher prefetcher;
    EXPECT_TRUE(prefetcher.wanted());
    // Other processes' reads don't count, and this one reads nothing: bounded only for the case that it is swapped in.
    bool resting = false;
    for (int i = 0; i < 100'000 && !resting; ++i)
        resting = !prefetcher.wanted();
    EXPECT_TRUE(resting);
}

TEST(MemoryLimit, IsNoMoreThanTheMachineHas) {
    std::uint64_t machine =
        static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
    EXPECT_GT(memory_limit(), 0U);
    EXPECT_LE(memory_limit(), machine);
}

}  // namespace
}  // namespace kvasir
