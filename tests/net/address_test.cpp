#include "net/address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kvasir {
namespace {

Address parsed(std::string_view text) {
    Result<Address> address = parse_address(text, 7411);
    EXPECT_TRUE(address.has_value()) << text << ": " << (address ? "" : address.error().message);
    return address.value_or(Address{"failed", 0});
}

TEST(AddressTest, AcceptsEveryForm) {
    EXPECT_EQ(parsed("example.org:80"), (Address{"example.org", 80}));
    EXPECT_EQ(parsed("example.org"), (Address{"example.org", 7411}));
    EXPECT_EQ(parsed("10.0.0.1:65535"), (Address{"10.0.0.1", 65535}));
    EXPECT_EQ(parsed("[::1]:9"), (Address{"::1", 9}));
    EXPECT_EQ(parsed("[fe80::1%lo]"), (Address{"fe80::1%lo", 7411}));
    EXPECT_EQ(parsed(":0"), (Address{"", 0}));
    EXPECT_EQ(parsed("my_host-1:1"), (Address{"my_host-1", 1}));
}

TEST(AddressTest, RefusesWithTheReason) {
    struct Case {
        std::string text;
        std::string reason;
    };
    for (const Case& c : {Case{"", "empty"}, Case{"host:", "not a port"}, Case{"host:65536", "not a port"},
                          Case{"host:-1", "not a port"}, Case{"host:12a", "not a port"}, Case{"host: 1", "not a port"},
                          Case{"[::1", "not closed"}, Case{"[::1]x", "expected after"}, Case{"[::1]:", "not a port"},
                          Case{"[example]:1", "not an IPv6"}, Case{"[]:1", "not an IPv6"}, Case{"::1", "brackets"},
                          Case{"a b:1", "not a host"}, Case{"http://x", "not a port"}, Case{"x/y:1", "not a host"},
                          Case{"x\n:1", "not a host"}, Case{std::string(300, 'a') + ":1", "not a host"}}) {
        Result<Address> address = parse_address(c.text, 7411);
        ASSERT_FALSE(address.has_value()) << c.text;
        EXPECT_EQ(address.error().kind, ErrorKind::usage) << c.text;
        EXPECT_THAT(address.error().message, testing::HasSubstr(c.reason)) << c.text;
    }
}

TEST(AddressTest, TextParsesBack) {
    for (const Address& address : {Address{"::1", 9}, Address{"host", 80}, Address{"", 7411}, Address{"1.2.3.4", 0}}) {
        EXPECT_EQ(parsed(address.text()), address) << address.text();
    }
}

}  // namespace
}  // namespace kvasir
