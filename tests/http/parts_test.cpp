// The parts that read text from strangers: ranges, URLs, percent-encoding, routes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "http/range.h"
#include "http/router.h"
#include "http/text.h"
#include "http/url.h"

namespace kvasir::http {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Kind = RangeRequest::Kind;

struct RangeCase {
    const char* field;
    std::uint64_t size;
    Kind kind;
    std::uint64_t first = 0;
    std::uint64_t length = 0;
};
class Ranges : public testing::TestWithParam<RangeCase> {};

TEST_P(Ranges, AreReadAsTheStandardHasThem) {
    const RangeCase& wanted = GetParam();
    const RangeRequest range = parse_range(wanted.field, wanted.size);
    EXPECT_EQ(range.kind, wanted.kind) << wanted.field;
    if (wanted.kind == Kind::part) {
        EXPECT_EQ(range.part, (ByteRange{wanted.first, wanted.length})) << wanted.field;
    }
}

INSTANTIATE_TEST_SUITE_P(
    Http, Ranges,
    testing::Values(RangeCase{"bytes=0-0", 10, Kind::part, 0, 1}, RangeCase{"bytes=0-99", 10, Kind::part, 0, 10},
                    RangeCase{"bytes=3-5", 10, Kind::part, 3, 3}, RangeCase{"bytes=9-", 10, Kind::part, 9, 1},
                    RangeCase{"bytes=-3", 10, Kind::part, 7, 3}, RangeCase{"bytes=-30", 10, Kind::part, 0, 10},
                    RangeCase{"Bytes=0-18446744073709551615", 10, Kind::part, 0, 10},
                    RangeCase{"bytes=0-99999999999999999999999", 10, Kind::part, 0, 10},
                    RangeCase{"bytes=10-", 10, Kind::unsatisfiable}, RangeCase{"bytes=10-20", 10, Kind::unsatisfiable},
                    RangeCase{"bytes=99999999999999999999-", 10, Kind::unsatisfiable},
                    RangeCase{"bytes=-0", 10, Kind::unsatisfiable}, RangeCase{"bytes=-5", 0, Kind::unsatisfiable},
                    RangeCase{"bytes=0-0", 0, Kind::unsatisfiable}, RangeCase{"bytes=5-3", 10, Kind::whole},
                    RangeCase{"bytes=0-1,3-4", 10, Kind::whole}, RangeCase{"bytes=", 10, Kind::whole},
                    RangeCase{"bytes=-", 10, Kind::whole}, RangeCase{"bytes=a-b", 10, Kind::whole},
                    RangeCase{"bytes=+1-2", 10, Kind::whole}, RangeCase{"bytes=1 - 2", 10, Kind::whole},
                    RangeCase{"bytes=0x1-2", 10, Kind::whole}, RangeCase{"lines=0-1", 10, Kind::whole},
                    RangeCase{"", 10, Kind::whole}));

TEST(Range, WhatAClientAsksForIsWhatAServerUnderstands) {
    std::mt19937_64 random(7);
    for (int i = 0; i < 20000; ++i) {
        const std::uint64_t size = 1 + random() % (i % 2 == 0 ? 50 : UINT64_MAX >> 2);
        const std::uint64_t first = random() % size;
        const std::uint64_t length = 1 + random() % (size - first);
        const RangeRequest asked = parse_range(range_field({first, length}), size);
        ASSERT_EQ(asked.kind, Kind::part);
        ASSERT_EQ(asked.part, (ByteRange{first, length}));
        const Result<ContentRange> sent = parse_content_range(content_range_field(asked.part, size));
        ASSERT_TRUE(sent) << sent.error().message;
        ASSERT_EQ(sent->range, asked.part);
        ASSERT_EQ(sent->size, size);
    }
}

TEST(Range, RandomTextNeverReachesBeyondTheEnd) {
    std::mt19937_64 random(8);
    constexpr std::string_view kLetters = "0123456789-=,bytes /*+\t";
    for (int i = 0; i < 50000; ++i) {
        std::string field = random() % 4 == 0 ? "" : "bytes=";
        for (std::uint64_t n = random() % 24; n > 0; --n)
            field += kLetters[random() % kLetters.size()];
        const std::uint64_t size = random() % 3 == 0 ? random() : random() % 100;
        const RangeRequest range = parse_range(field, size);
        if (range.kind != Kind::part) continue;
        ASSERT_GT(range.part.length, 0U) << field;
        ASSERT_LE(range.part.length, size) << field;
        ASSERT_LE(range.part.first, size - range.part.length) << field;
    }
}

TEST(ContentRange, ContradictionsAreRefused) {
    for (const char* field :
         {"", "bytes", "bytes 0-9", "bytes 9-0/10", "bytes 0-10/10", "bytes */10", "bytes 0-18446744073709551615/*",
          "octets 0-1/2", "bytes a-b/c", "bytes 0-9/x", "bytes 0/9-1"}) {
        EXPECT_FALSE(parse_content_range(field)) << field;
    }
    EXPECT_EQ(parse_content_range("bytes 2-5/*")->size, std::nullopt);
    EXPECT_EQ(parse_content_range("bytes 2-5/6")->range, (ByteRange{2, 4}));
}

TEST(UrlTest, PartsAndWhole) {
    const Url url = parse_url("https://hub.example:8443/a/b?c=d").value();
    EXPECT_TRUE(url.secure);
    EXPECT_EQ(url.address, (Address{"hub.example", 8443}));
    EXPECT_EQ(url.target, "/a/b?c=d");
    EXPECT_EQ(url.text(), "https://hub.example:8443/a/b?c=d");
    EXPECT_EQ(parse_url("HTTP://[::1]")->text(), "http://[::1]/");
    EXPECT_EQ(parse_url("http://h?x")->target, "/?x");
    EXPECT_EQ(parse_url("https://h")->address.port, 443);
    EXPECT_EQ(parse_url("https://h:80/")->authority(), "h:80");
}

TEST(UrlTest, WhatIsNoneIsRefused) {
    for (const std::string& text :
         {std::string("ftp://h/"), std::string("h/x"), std::string("http://"), std::string("http:///x"),
          std::string("http://user:hunter2@h/"), std::string("http://h/a b"), std::string("http://h/\r\nX: y"),
          std::string("http://h:99999/"), std::string("http://h:0/"), std::string("http://h/#x"),
          "http://h/" + std::string(5000, 'a'), std::string("http://h/\xC3\xA9")}) {
        const Result<Url> url = parse_url(text);
        ASSERT_FALSE(url) << text;
        EXPECT_EQ(url.error().kind, ErrorKind::usage);
        EXPECT_THAT(url.error().message, testing::Not(HasSubstr("hunter2")));
    }
}

TEST(UrlTest, RedirectsAreResolved) {
    const Url base = parse_url("https://a/x/y?z").value();
    EXPECT_EQ(resolve(base, "http://b/c")->text(), "http://b/c");
    EXPECT_EQ(resolve(base, "//b/c")->text(), "https://b/c");
    EXPECT_EQ(resolve(base, "/c#d")->text(), "https://a/c");
    EXPECT_EQ(resolve(base, " w ")->text(), "https://a/x/w");
    EXPECT_FALSE(resolve(base, "javascript:alert(1) "));
    EXPECT_EQ(inside(parse_url("http://m/dir?x").value(), "a b/ü.gguf").text(), "http://m/dir/a%20b%2F%C3%BC.gguf");
    EXPECT_EQ(inside(parse_url("http://m/dir/").value(), "a").text(), "http://m/dir/a");
}

TEST(Text, PercentCodingGoesBothWays) {
    std::mt19937 random(3);
    for (int i = 0; i < 1000; ++i) {
        std::string text(random() % 20, '\0');
        for (char& c : text)
            c = static_cast<char>(random());
        EXPECT_EQ(percent_decoded(percent_encoded(text)), text);
    }
    for (const char* broken : {"%", "%1", "a%2", "%zz", "%1g"})
        EXPECT_EQ(percent_decoded(broken), std::nullopt) << broken;
}

Request request(std::string method, std::string path) {
    Request made;
    made.method = std::move(method);
    made.path = std::move(path);
    return made;
}

TEST(RouterTest, FindsWhoAnswers) {
    Router router;
    PathParameters seen;
    router.add("GET", "/v1/models/{id}/files/{n}", [&](const Request&, const PathParameters& parameters) {
        seen = parameters;
        return json_response("file");
    });
    router.add("GET", "/v1/models", [](const Request&, const PathParameters&) { return json_response("list"); });
    router.add("POST", "/v1/models", [](const Request&, const PathParameters&) { return json_response("made"); });
    EXPECT_EQ(router.answer(request("GET", "/v1/models/a%2Fb/files/7")).status, 200U);
    EXPECT_THAT(seen, ElementsAre("a/b", "7"));
    EXPECT_EQ(std::get<std::string>(router.answer(request("POST", "/v1/models")).body), "made");
    EXPECT_EQ(router.answer(request("HEAD", "/v1/models")).status, 200U);
    const Response refused = router.answer(request("DELETE", "/v1/models"));
    EXPECT_EQ(refused.status, 405U);
    EXPECT_EQ(find_field(refused.fields, "allow"), "GET, HEAD, POST");
    for (const char* unknown : {"/", "/v1/models/", "/v1//files/1", "/v1/models/a/files/", "/v1/models/a/files/1/2"})
        EXPECT_EQ(router.answer(request("GET", unknown)).status, 404U) << unknown;
    EXPECT_EQ(router.answer(request("GET", "/v1/%zz")).status, 400U);
}

}  // namespace
}  // namespace kvasir::http
