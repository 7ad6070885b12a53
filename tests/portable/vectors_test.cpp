#include "portable/vectors.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

namespace kvasir::portable::test {
namespace {

std::string read_file(const std::string& name) {
    std::ifstream in(std::string(KVASIR_VECTORS) + "/" + name, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

// The files are portable/1: a difference here is another arithmetic, not a file to write again.
TEST(Vectors, TheReferenceGivesTheFiles) {
    for (const auto& [name, file] : make_vectors()) {
        const std::string stored = read_file(name);
        ASSERT_FALSE(stored.empty()) << name;
        EXPECT_TRUE(stored == text_of(file)) << name << " differs";
    }
}

}  // namespace
}  // namespace kvasir::portable::test
