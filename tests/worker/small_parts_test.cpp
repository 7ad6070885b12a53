// Admission, log throttle, cores.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>

#include "base/files.h"
#include "base/temp_directory.h"
#include "worker/admission.h"
#include "worker/cores.h"
#include "worker/log_throttle.h"

namespace kvasir {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;

const std::string kFirst(64, 'a');
const std::string kSecond(64, 'b');

class AdmissionTest : public testing::Test {
  protected:
    std::filesystem::path write(std::string_view text) {
        auto file = directory_->path() / "ids";
        EXPECT_TRUE(write_text_file(file, text));
        return file;
    }
    Result<TempDirectory> directory_ = TempDirectory::create("kvasir-admission-test-");
};

TEST_F(AdmissionTest, JoinsFlagsAndFile) {
    const auto file = write("# the office\n\n  " + kSecond + "  # its id\r\n" + kFirst);
    const std::vector<std::string> ids = {kFirst};
    const auto admitted = read_admissions(ids, file);
    ASSERT_TRUE(admitted) << admitted.error().message;
    EXPECT_EQ(*admitted, (std::set<NodeId>{*digest_from_hex(kFirst), *digest_from_hex(kSecond)}));
    EXPECT_TRUE(read_admissions({}, {})->empty());
}

TEST_F(AdmissionTest, NamesWhatIsNoId) {
    const std::vector<std::string> ids = {"abc"};
    EXPECT_THAT(read_admissions(ids, {}).error().message, HasSubstr("'abc'"));
    EXPECT_THAT(read_admissions({}, write(kFirst + "\nxyz\n")).error().message, HasSubstr("line 2: 'xyz'"));
    EXPECT_FALSE(read_admissions({}, directory_->path() / "missing"));
}

TEST(LogThrottle, KeepsRepetitionsBackAndCountsThem) {
    LogThrottle throttle(seconds(10));
    const LogThrottle::Clock::time_point start{};
    EXPECT_EQ(throttle.admit("a", start), 0U);
    EXPECT_EQ(throttle.admit("a", start + seconds(1)), std::nullopt);
    EXPECT_EQ(throttle.admit("b", start + seconds(1)), 0U);
    EXPECT_EQ(throttle.admit("a", start + seconds(9)), std::nullopt);
    EXPECT_EQ(throttle.admit("a", start + seconds(10)), 2U);
    EXPECT_EQ(throttle.admit("a", start + seconds(11)), std::nullopt);
}

TEST(LogThrottle, BoundsItsMemory) {
    LogThrottle throttle(seconds(10));
    const LogThrottle::Clock::time_point start{};
    int admitted = 0;
    for (int i = 0; i < 5000; ++i)
        admitted += throttle.admit(std::to_string(i), start).has_value() ? 1 : 0;
    EXPECT_LT(admitted, 2000);
    EXPECT_EQ(throttle.admit("later", start + seconds(10)), 0U);
}

TEST(Cores, AreAmongTheAllowedOnes) {
    cpu_set_t allowed;
    ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
    const std::vector<int> cores = physical_cores();
    ASSERT_FALSE(cores.empty());
    EXPECT_TRUE(std::ranges::is_sorted(cores));
    for (int core : cores)
        EXPECT_TRUE(CPU_ISSET(core, &allowed));
}

TEST(Cores, PinningRestrictsThisThread) {
    EXPECT_FALSE(pin_to_cores(0));
    cpu_set_t before;
    ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
    const int first = physical_cores().front();
    ASSERT_TRUE(pin_to_cores(1));
    cpu_set_t after;
    ASSERT_EQ(sched_getaffinity(0, sizeof after, &after), 0);
    EXPECT_EQ(CPU_COUNT(&after), 1);
    EXPECT_TRUE(CPU_ISSET(first, &after));
    sched_setaffinity(0, sizeof before, &before);
}

}  // namespace
}  // namespace kvasir
