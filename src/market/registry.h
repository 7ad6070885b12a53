// Who takes part: nodes by their keys, their owners and roles, and how they show who they are.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include "market/rate_limit.h"
#include "market/store.h"
#include "market/tokens.h"

namespace kvasir::market {

// Who asks, as the registry established it. What a node may do to a lease it may do to its own only: the market's
// functions take a caller and no other node's name.
struct Caller {
    NodeId node{};
    OwnerId owner{};
    Roles roles = 0;
    bool may(RoleBit role) const { return (roles & role) != 0; }
};

struct AccessRules {
    Duration challenge = std::chrono::minutes(2);
    Duration token = std::chrono::hours(1);
    RateLimit per_address = {.burst = 60, .per_second = 5};       // of whatever a client asks without a token
    RateLimit registrations = {.burst = 20, .per_second = 0.05};  // of one address
    RateLimit per_key = {.burst = 60, .per_second = 2};
    std::size_t limiter_capacity = 100'000;  // names in one limiter
    std::size_t max_nodes = 1'000'000;
};

// An owner's signature over ownership_message(node).
struct OwnershipProof {
    PublicKey owner{};
    Signature signature{};
};

// First 8 bytes of a digest: they are uniformly distributed.
struct DigestHash {
    std::size_t operator()(const Digest& digest) const {
        std::size_t hash = 0;
        std::memcpy(&hash, digest.data(), sizeof(hash));
        return hash;
    }
};

// Thread-safe. Errors: ErrorKind::unavailable asks to come back later (the message says when), ErrorKind::usage means
// not allowed, ErrorKind::invalid a wrong key, signature, challenge or token, and the store's own.
class Registry {
  public:
    using Random = std::function<Nonce()>;
    // `store` and `clock` outlive it. `nodes` and `secret` are what the store remembered.
    Registry(Store& store, const Clock& clock, Random random, const Remembered& remembered, AccessRules rules = {});

    // A new node with the role of a worker; a known key is the same node again (a new proof changes nothing).
    Result<NodeRecord> register_node(std::string_view address, const PublicKey& key,
                                     const std::optional<OwnershipProof>& proof);

    Result<std::string> challenge(std::string_view address, const NodeId& node);
    // A token for the challenge signed by the node's key. Each challenge works once.
    Result<std::string> login(std::string_view address, const NodeId& node, std::string_view challenge,
                              const Signature& signature);
    // Counts against the node's rate limit.
    Result<Caller> authenticate(std::string_view token);

    // By an admin, or by the hub's own command line, which has no caller.
    Status set_roles(const std::optional<Caller>& by, const NodeId& node, Roles roles);
    // All its tokens are void at once, and it gets no more; its key stays known.
    Status revoke(const std::optional<Caller>& by, const NodeId& node);
    // Its tokens are void, it may log in again: after a token leaked.
    Status revoke_tokens(const Caller& by);

    std::optional<NodeRecord> find(const NodeId& node) const;
    std::size_t size() const;

  private:
    Status admit(RateLimiter& limiter, std::string_view name);
    Status require_admin(const std::optional<Caller>& by) const;
    Status save(NodeRecord changed);
    Status use_challenge(std::string_view challenge);
    const NodeRecord* known(const NodeId& node) const;

    Store& store_;
    const Clock& clock_;
    Random random_;
    AccessRules rules_;
    std::string secret_;
    mutable std::mutex mutex_;
    std::unordered_map<NodeId, NodeRecord, DigestHash> nodes_;
    std::unordered_map<std::string, Instant> used_;  // challenges, until they are too old anyway
    RateLimiter per_address_;
    RateLimiter registrations_;
    RateLimiter per_key_;
};

// From the operating system.
Nonce random_nonce();

}  // namespace kvasir::market
