// Keys, owners, roles, tokens, and how often one may ask.
#include "market/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "market/sqlite_store.h"

namespace kvasir::market {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

class RegistryTest : public ::testing::Test {
  protected:
    void SetUp() override {
        store_ = std::move(*SqliteStore::open(":memory:"));
        restart();
    }
    void restart() {
        registry_ = std::make_unique<Registry>(
            *store_, clock_, [this] { return Nonce{std::byte{++nonces_}}; }, store_->load().value(), access_);
    }
    NodeRecord add(const Identity& identity, std::string_view address = "10.0.0.1") {
        Result<NodeRecord> node = registry_->register_node(address, public_key(identity), std::nullopt);
        EXPECT_TRUE(node) << node.error().message;
        return *node;
    }
    Result<std::string> login(const Identity& identity, const std::string& challenge) {
        return registry_->login("10.0.0.1", identity.id(), challenge, sign(identity, login_message(challenge)));
    }
    std::string token(const Identity& identity) {
        Result<std::string> made = login(identity, registry_->challenge("10.0.0.1", identity.id()).value());
        EXPECT_TRUE(made) << made.error().message;
        return *made;
    }
    static void expect_error(const auto& result, ErrorKind kind) {
        ASSERT_FALSE(result);
        EXPECT_EQ(result.error().kind, kind) << result.error().message;
    }

    AccessRules access_;
    ManualClock clock_{Instant(20'000 * 24h)};
    std::uint8_t nonces_ = 0;
    std::unique_ptr<SqliteStore> store_;
    std::unique_ptr<Registry> registry_;
    Identity node_ = Identity::generate().value();
    Identity other_ = Identity::generate().value();
};

TEST_F(RegistryTest, ANodeIsItsKey) {
    const NodeRecord node = add(node_);
    EXPECT_EQ(node.id, node_.id());
    EXPECT_EQ(node.owner, node_.id());
    EXPECT_EQ(node.roles, kWorker);
    EXPECT_EQ(add(node_), node);
    EXPECT_EQ(registry_->size(), 1U);
    restart();
    EXPECT_EQ(registry_->find(node.id), node);
}

TEST_F(RegistryTest, AnOwnerMustHaveSigned) {
    OwnershipProof proof{public_key(other_), sign(other_, ownership_message(node_.id()))};
    Result<NodeRecord> node = registry_->register_node("10.0.0.1", public_key(node_), proof);
    ASSERT_TRUE(node) << node.error().message;
    EXPECT_EQ(node->owner, other_.id());
    const Identity third = Identity::generate().value();
    expect_error(registry_->register_node("10.0.0.1", public_key(third), proof), ErrorKind::invalid);
    // Signed by the node itself, or for another purpose.
    proof.signature = sign(third, ownership_message(third.id()));
    expect_error(registry_->register_node("10.0.0.1", public_key(third), proof), ErrorKind::invalid);
    proof.signature = sign(other_, third.id());
    expect_error(registry_->register_node("10.0.0.1", public_key(third), proof), ErrorKind::invalid);
}

TEST_F(RegistryTest, AnAnswerGivesATokenThatNamesItsNode) {
    add(node_);
    Result<Caller> caller = registry_->authenticate(token(node_));
    ASSERT_TRUE(caller) << caller.error().message;
    EXPECT_EQ(caller->node, node_.id());
    EXPECT_TRUE(caller->may(kWorker));
    EXPECT_FALSE(caller->may(kBackbone));
    EXPECT_FALSE(caller->may(kAdmin));
}

TEST_F(RegistryTest, AChallengeIsForOneNodeOneTimeAndTwoMinutes) {
    add(node_);
    add(other_);
    const std::string challenge = registry_->challenge("10.0.0.1", node_.id()).value();
    expect_error(login(other_, challenge), ErrorKind::invalid);
    expect_error(registry_->login("10.0.0.1", node_.id(), challenge, sign(other_, login_message(challenge))),
                 ErrorKind::invalid);
    ASSERT_TRUE(login(node_, challenge));
    expect_error(login(node_, challenge), ErrorKind::invalid);
    const std::string late = registry_->challenge("10.0.0.1", node_.id()).value();
    clock_.advance(access_.challenge - 1ms);
    EXPECT_TRUE(login(node_, registry_->challenge("10.0.0.1", node_.id()).value()));
    clock_.advance(1ms);
    expect_error(login(node_, late), ErrorKind::unavailable);
    for (std::size_t i = 0; i < late.size(); ++i) {
        std::string forged = late;
        forged[i] = forged[i] == '0' ? '1' : '0';
        expect_error(login(node_, forged), ErrorKind::invalid);
        clock_.advance(1s);
    }
    const Identity stranger = Identity::generate().value();
    expect_error(login(stranger, registry_->challenge("10.0.0.1", stranger.id()).value()), ErrorKind::invalid);
}

TEST_F(RegistryTest, TokensEndAndCanBeRevoked) {
    add(node_);
    const std::string first = token(node_);
    clock_.advance(access_.token - 1ms);
    restart();  // tokens outlast the hub
    EXPECT_TRUE(registry_->authenticate(first));
    clock_.advance(1ms);
    expect_error(registry_->authenticate(first), ErrorKind::unavailable);
    const std::string second = token(node_);
    for (std::size_t i = 0; i < second.size(); ++i) {
        std::string forged = second;
        forged[i] = forged[i] == '0' ? '1' : '0';
        expect_error(registry_->authenticate(forged), ErrorKind::invalid);
    }
    expect_error(registry_->authenticate(""), ErrorKind::invalid);
    expect_error(registry_->authenticate(std::string(100'000, '.')), ErrorKind::invalid);
    // A challenge is no token.
    expect_error(registry_->authenticate(registry_->challenge("10.0.0.1", node_.id()).value()), ErrorKind::invalid);

    ASSERT_TRUE(registry_->revoke_tokens(registry_->authenticate(second).value()));
    expect_error(registry_->authenticate(second), ErrorKind::invalid);
    const std::string third = token(node_);
    EXPECT_TRUE(registry_->authenticate(third));
    ASSERT_TRUE(registry_->revoke(std::nullopt, node_.id()));
    expect_error(registry_->authenticate(third), ErrorKind::invalid);
    expect_error(login(node_, registry_->challenge("10.0.0.1", node_.id()).value()), ErrorKind::usage);
    expect_error(registry_->register_node("10.0.0.1", public_key(node_), std::nullopt), ErrorKind::usage);
    restart();
    expect_error(registry_->authenticate(third), ErrorKind::invalid);
}

TEST_F(RegistryTest, OnlyAdminsGiveRolesAndRevoke) {
    add(node_);
    add(other_);
    const Caller nobody = registry_->authenticate(token(node_)).value();
    expect_error(registry_->set_roles(nobody, node_.id(), kBackbone), ErrorKind::usage);
    expect_error(registry_->revoke(nobody, other_.id()), ErrorKind::usage);
    Caller boaster = nobody;
    boaster.roles = kAdmin;  // what it says of itself does not count
    expect_error(registry_->set_roles(boaster, node_.id(), kBackbone), ErrorKind::usage);
    ASSERT_TRUE(registry_->set_roles(std::nullopt, node_.id(), kAdmin));
    const Caller admin = registry_->authenticate(token(node_)).value();
    ASSERT_TRUE(registry_->set_roles(admin, other_.id(), kBackbone | kWorker));
    EXPECT_EQ(registry_->find(other_.id())->roles, kBackbone | kWorker);
    expect_error(registry_->set_roles(admin, other_.id(), 64), ErrorKind::usage);
    expect_error(registry_->set_roles(admin, Digest{}, kWorker), ErrorKind::usage);
    ASSERT_TRUE(registry_->revoke(admin, other_.id()));
    EXPECT_TRUE(registry_->find(other_.id())->revoked);
}

TEST_F(RegistryTest, AFloodOfRegistrationsFromOneAddressHurtsNobodyElse) {
    std::size_t taken = 0;
    for (int i = 0; i < 2500; ++i) {
        taken += registry_->register_node("2001:db8::" + std::to_string(i), public_key(Identity::generate().value()),
                                          std::nullopt)
                     ? 1
                     : 0;
        clock_.advance(10ms);
    }
    EXPECT_EQ(taken, 21U);  // 20 at once, another one every 20 seconds
    EXPECT_EQ(registry_->size(), 21U);
    add(node_, "192.0.2.1");
    // A known key is no new one, but not for free either.
    Result<NodeRecord> again = registry_->register_node("2001:db8::1", public_key(node_), std::nullopt);
    expect_error(again, ErrorKind::unavailable);
    EXPECT_THAT(again.error().message, HasSubstr("try again in"));
}

TEST_F(RegistryTest, NodesAreBounded) {
    access_.max_nodes = 1;
    restart();
    add(node_);
    expect_error(registry_->register_node("10.0.0.1", public_key(other_), std::nullopt), ErrorKind::unavailable);
    add(node_);
}

TEST_F(RegistryTest, OneKeyIsBoundedWhereverItAsksFrom) {
    access_.per_key = {.burst = 3, .per_second = 1};
    restart();
    add(node_);
    const std::string shown = token(node_);
    EXPECT_TRUE(registry_->authenticate(shown));
    EXPECT_TRUE(registry_->authenticate(shown));
    expect_error(registry_->authenticate(shown), ErrorKind::unavailable);
    clock_.advance(1s);
    EXPECT_TRUE(registry_->authenticate(shown));
}

TEST(RateLimiterTest, ABucketFillsWithTime) {
    RateLimiter limiter({.burst = 2, .per_second = 0.5}, 10);
    const Instant start(1000s);
    EXPECT_EQ(limiter.take("a", start), 0ms);
    EXPECT_EQ(limiter.take("a", start), 0ms);
    EXPECT_EQ(limiter.take("a", start), 2000ms);
    EXPECT_EQ(limiter.take("b", start), 0ms);
    EXPECT_EQ(limiter.take("a", start + 1999ms), 1ms);
    EXPECT_EQ(limiter.take("a", start + 2000ms), 0ms);
    // A clock that goes back and forth makes no tokens.
    EXPECT_GT(limiter.take("a", start - 1h), 0ms);
    EXPECT_GT(limiter.take("a", start + 2000ms), 0ms);
    EXPECT_EQ(limiter.take("a", start + 1h), 0ms);
    EXPECT_EQ(limiter.take("a", start + 1h), 0ms);
    EXPECT_GT(limiter.take("a", start + 1h), 0ms);
}

TEST(RateLimiterTest, ManyNamesTakeBoundedMemory) {
    RateLimiter limiter({.burst = 1, .per_second = 1}, 100);
    const Instant start(1000s);
    for (int i = 0; i < 100; ++i)
        EXPECT_EQ(limiter.take(std::to_string(i), start), 0ms);
    EXPECT_GT(limiter.take("one more", start), 0ms);
    EXPECT_EQ(limiter.size(), 100U);
    EXPECT_EQ(limiter.take("one more", start + 2s), 0ms);
    EXPECT_EQ(limiter.size(), 1U);
}

TEST(AddressTest, ClientsAndSites) {
    EXPECT_EQ(client_of("192.0.2.7"), "192.0.2.7/32");
    EXPECT_EQ(site_of("192.0.2.7"), "192.0.2.0/24");
    EXPECT_EQ(client_of("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::/64");
    EXPECT_EQ(site_of("2001:db8:1:2:3:4:5:6"), "2001:db8:1::/48");
    EXPECT_EQ(site_of("::ffff:192.0.2.7"), "192.0.2.0/24");
    EXPECT_EQ(client_of("somewhere"), "somewhere");
    EXPECT_NE(site_of("192.0.2.7"), site_of("192.0.3.7"));
}

}  // namespace
}  // namespace kvasir::market
