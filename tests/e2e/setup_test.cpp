// The setup script where something is missing or broken: it says what, and leaves nothing that a second run would take
// for complete. Downloads are played by a stand-in for npm; nothing is built.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/files.h"
#include "e2e/cluster.h"

namespace kvasir::e2e {
namespace {

using testing::HasSubstr;

class SetupTest : public testing::Test {
  protected:
    // Runs the script with an empty cache and `npm_script` as npm.
    Outcome setup(const std::string& npm_script, std::vector<std::string> arguments = {}) const {
        std::filesystem::path bin = directory_.path() / "bin";
        std::filesystem::create_directories(bin);
        EXPECT_TRUE(write_text_file(bin / "npm", "#!/bin/sh\n" + npm_script + "\n"));
        std::filesystem::permissions(bin / "npm", std::filesystem::perms::owner_all);
        arguments.insert(arguments.begin(), KVASIR_SOURCE "/scripts/setup.sh");
        return run(arguments,
                   {fmt::format("PATH={}:{}", bin.string(), std::getenv("PATH")), "KVASIR_CACHE=" + cache().string()});
    }
    std::filesystem::path cache() const { return directory_.path() / "cache"; }

    TempDirectory directory_ = TempDirectory::create("kvasir-setup-").value();
};

TEST_F(SetupTest, ADamagedDownloadIsNotUsed) {
    for (int attempt = 0; attempt < 2; ++attempt) {
        Outcome outcome = setup("echo garbage > node-llama-cpp-3.22.1.tgz");
        EXPECT_EQ(outcome.exit_code, 1);
        EXPECT_THAT(outcome.err, HasSubstr("damaged"));
    }
}

TEST_F(SetupTest, AnUnreachableRegistryIsSaidWithTheWayAround) {
    Outcome outcome = setup("echo 'npm error network' >&2; exit 1");
    EXPECT_EQ(outcome.exit_code, 1);
    EXPECT_THAT(outcome.err, HasSubstr("npm error network"));
    EXPECT_THAT(outcome.err, HasSubstr("--llama-source"));
}

TEST_F(SetupTest, WrongArgumentsAreExplained) {
    EXPECT_THAT(setup("exit 1", {"--nonsense"}).err, HasSubstr("--nonsense"));
    EXPECT_THAT(setup("exit 1", {"--llama-source", "/no/such/directory"}).err, HasSubstr("/no/such/directory"));
}

TEST_F(SetupTest, ACacheThatCannotBeWrittenIsNamed) {
    ASSERT_TRUE(write_text_file(cache(), "a file where the directory should be"));
    Outcome outcome = setup("exit 1");
    EXPECT_EQ(outcome.exit_code, 1);
    EXPECT_THAT(outcome.err, HasSubstr("KVASIR_CACHE"));
}

}  // namespace
}  // namespace kvasir::e2e
