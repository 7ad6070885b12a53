#include "expert/arithmetic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kvasir {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Arithmetic, TheBestComesFirst) {
    EXPECT_THAT(known_arithmetics(), ElementsAre(Arithmetic::portable, Arithmetic::ggml_cpu));
}

TEST(Arithmetic, NamesVersionAndInstructionSet) {
    EXPECT_EQ(wire_name(Arithmetic::portable), "portable/1");
    EXPECT_THAT(wire_name(Arithmetic::ggml_cpu), testing::MatchesRegex("ggml-cpu/[0-9.]+/[a-z0-9_]+(-[a-z0-9]+)*"));
    EXPECT_EQ(wire_name(Arithmetic::ggml_cpu), wire_name(Arithmetic::ggml_cpu));
}

TEST(Arithmetic, IsFoundByItsWireNameAlone) {
    for (Arithmetic arithmetic : known_arithmetics())
        EXPECT_EQ(find_arithmetic(wire_name(arithmetic)), arithmetic);
    const std::string ggml = wire_name(Arithmetic::ggml_cpu);
    for (const std::string& unknown :
         {std::string(), std::string("portable"), std::string("portable/"), std::string("portable/2"),
          std::string("portable/10"), std::string("Portable/1"), std::string("portable/1 "), std::string("ggml-cpu"),
          ggml + "-more", ggml.substr(0, ggml.size() - 1)}) {
        EXPECT_EQ(find_arithmetic(unknown), std::nullopt) << unknown;
    }
}

TEST(Arithmetic, IsParsedByItsShortNameAlone) {
    for (Arithmetic arithmetic : known_arithmetics()) {
        const Result<Arithmetic> parsed = parse_arithmetic(short_name(arithmetic));
        ASSERT_TRUE(parsed);
        EXPECT_EQ(*parsed, arithmetic);
    }
    for (const char* unknown : {"", "portable/1", "ggml", "PORTABLE", "exact"}) {
        const Result<Arithmetic> parsed = parse_arithmetic(unknown);
        ASSERT_FALSE(parsed) << unknown;
        EXPECT_EQ(parsed.error().kind, ErrorKind::usage);
        EXPECT_THAT(parsed.error().message, HasSubstr("portable or ggml-cpu"));
    }
}

}  // namespace
}  // namespace kvasir
