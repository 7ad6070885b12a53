#include "base/user_directories.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <string>

namespace kvasir {
namespace {

// Puts the environment back when it ends.
class UserDirectoriesTest : public testing::Test {
  protected:
    UserDirectoriesTest() {
        for (Variable& variable : variables_) {
            if (const char* value = std::getenv(variable.name)) variable.before = value;
            ::unsetenv(variable.name);
        }
        set("HOME", "/home/somebody");
    }
    ~UserDirectoriesTest() override {
        for (const Variable& variable : variables_) {
            ::unsetenv(variable.name);
            if (variable.before) set(variable.name, variable.before->c_str());
        }
    }
    static void set(const char* name, const char* value) { ::setenv(name, value, 1); }

  private:
    struct Variable {
        const char* name;
        std::optional<std::string> before;
    };
    Variable variables_[4] = {{"KVASIR_HOME", {}}, {"XDG_CONFIG_HOME", {}}, {"XDG_STATE_HOME", {}}, {"HOME", {}}};
};

TEST_F(UserDirectoriesTest, AreBelowHome) {
    EXPECT_EQ(config_directory(), "/home/somebody/.config/kvasir");
    EXPECT_EQ(state_directory(), "/home/somebody/.local/state/kvasir");
}

TEST_F(UserDirectoriesTest, AreWhereXdgSays) {
    set("XDG_CONFIG_HOME", "/configuration");
    EXPECT_EQ(config_directory(), "/configuration/kvasir");
    EXPECT_EQ(state_directory(), "/home/somebody/.local/state/kvasir");
    set("XDG_STATE_HOME", "/state");
    EXPECT_EQ(state_directory(), "/state/kvasir");
}

TEST_F(UserDirectoriesTest, RelativeAndEmptyPathsOfXdgAreIgnored) {
    set("XDG_CONFIG_HOME", "configuration");
    set("XDG_STATE_HOME", "");
    EXPECT_EQ(config_directory(), "/home/somebody/.config/kvasir");
    EXPECT_EQ(state_directory(), "/home/somebody/.local/state/kvasir");
}

TEST_F(UserDirectoriesTest, KvasirHomeGoesBeforeAll) {
    set("XDG_CONFIG_HOME", "/configuration");
    set("XDG_STATE_HOME", "/state");
    set("KVASIR_HOME", "/kvasir");
    EXPECT_EQ(config_directory(), "/kvasir");
    EXPECT_EQ(state_directory(), "/kvasir");
    set("KVASIR_HOME", "");
    EXPECT_EQ(config_directory(), "/configuration/kvasir");
}

TEST_F(UserDirectoriesTest, WithoutHomeTheUsersEntryCounts) {
    ::unsetenv("HOME");
    EXPECT_TRUE(config_directory().is_absolute());
    EXPECT_EQ(config_directory().filename(), "kvasir");
}

}  // namespace
}  // namespace kvasir
