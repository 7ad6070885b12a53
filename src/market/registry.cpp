#include "market/registry.h"

#include <openssl/rand.h>

#include <cstdlib>

namespace kvasir::market {
namespace {

constexpr Roles kAllRoles = kWorker | kBackbone | kAdmin;

std::string_view view_of(const NodeId& node) {
    return {reinterpret_cast<const char*>(node.data()), node.size()};
}

}  // namespace

Nonce random_nonce() {
    Nonce nonce{};
    if (RAND_bytes(reinterpret_cast<unsigned char*>(nonce.data()), static_cast<int>(nonce.size())) != 1) std::abort();
    return nonce;
}

Registry::Registry(Store& store, const Clock& clock, Random random, const Remembered& remembered, AccessRules rules)
    : store_(store),
      clock_(clock),
      random_(std::move(random)),
      rules_(rules),
      secret_(remembered.secret),
      per_address_(rules.per_address, rules.limiter_capacity),
      registrations_(rules.registrations, rules.limiter_capacity),
      per_key_(rules.per_key, rules.limiter_capacity) {
    for (const NodeRecord& node : remembered.nodes)
        nodes_.emplace(node.id, node);
}

Status Registry::admit(RateLimiter& limiter, std::string_view name) {
    const Duration wait = limiter.take(name, clock_.now());
    if (wait <= Duration(0)) return {};
    return fail(ErrorKind::unavailable, "too many requests: try again in {} ms", wait.count());
}

const NodeRecord* Registry::known(const NodeId& node) const {
    auto found = nodes_.find(node);
    return found == nodes_.end() ? nullptr : &found->second;
}

Status Registry::save(NodeRecord changed) {
    const Change change = changed;
    if (Status saved = store_.apply({&change, 1}); !saved) return saved;
    nodes_[changed.id] = std::move(changed);
    return {};
}

Result<NodeRecord> Registry::register_node(std::string_view address, const PublicKey& key,
                                           const std::optional<OwnershipProof>& proof) {
    std::lock_guard lock(mutex_);
    if (Status ok = admit(per_address_, client_of(address)); !ok) return fail(ok.error());
    const NodeId id = node_id(key);
    if (const NodeRecord* node = known(id); node != nullptr) {
        if (node->revoked) return fail(ErrorKind::usage, "this node's key is revoked");
        return *node;
    }
    if (Status ok = admit(registrations_, client_of(address)); !ok) return fail(ok.error());
    if (nodes_.size() >= rules_.max_nodes) {
        return fail(ErrorKind::unavailable, "this hub has {} nodes and takes no more", nodes_.size());
    }
    NodeRecord node{.id = id, .key = key, .owner = id, .roles = kWorker, .registered = clock_.now()};
    if (proof) {
        if (!verify(proof->owner, ownership_message(id), proof->signature)) {
            return fail(ErrorKind::invalid, "the owner's signature is not over this node's id, or by another key");
        }
        node.owner = node_id(proof->owner);
    }
    if (Status saved = save(node); !saved) return fail(saved.error());
    return node;
}

Result<std::string> Registry::challenge(std::string_view address, const NodeId& node) {
    std::lock_guard lock(mutex_);
    if (Status ok = admit(per_address_, client_of(address)); !ok) return fail(ok.error());
    // For a node that is not known too: whether it is, only its key's owner learns.
    return make_challenge(secret_, node, clock_.now() + rules_.challenge, random_());
}

Status Registry::use_challenge(std::string_view challenge) {
    const Instant now = clock_.now();
    std::erase_if(used_, [&](const auto& each) { return each.second <= now; });
    if (!used_.emplace(challenge, now + rules_.challenge).second) {
        return fail(ErrorKind::invalid, "this challenge was answered before: ask for another");
    }
    return {};
}

Result<std::string> Registry::login(std::string_view address, const NodeId& node, std::string_view challenge,
                                    const Signature& signature) {
    std::lock_guard lock(mutex_);
    if (Status ok = admit(per_address_, client_of(address)); !ok) return fail(ok.error());
    if (Status ok = check_challenge(secret_, node, clock_.now(), challenge); !ok) return fail(ok.error());
    const NodeRecord* record = known(node);
    if (record == nullptr || !verify(record->key, login_message(challenge), signature)) {
        return fail(ErrorKind::invalid, "the answer is not signed by a key that is registered: register first");
    }
    if (record->revoked) return fail(ErrorKind::usage, "this node's key is revoked");
    if (Status ok = admit(per_key_, view_of(node)); !ok) return fail(ok.error());
    if (Status ok = use_challenge(challenge); !ok) return fail(ok.error());
    return make_token(secret_, {node, record->generation, clock_.now() + rules_.token});
}

Result<Caller> Registry::authenticate(std::string_view token) {
    std::lock_guard lock(mutex_);
    Result<Token> checked = check_token(secret_, clock_.now(), token);
    if (!checked) return fail(checked.error());
    const NodeRecord* node = known(checked->node);
    if (node == nullptr || node->revoked || node->generation != checked->generation) {
        return fail(ErrorKind::invalid, "this token is revoked");
    }
    if (Status ok = admit(per_key_, view_of(node->id)); !ok) return fail(ok.error());
    return Caller{node->id, node->owner, node->roles};
}

Status Registry::require_admin(const std::optional<Caller>& by) const {
    if (!by) return {};
    const NodeRecord* node = known(by->node);
    if (node != nullptr && !node->revoked && (node->roles & kAdmin) != 0) return {};
    return fail(ErrorKind::usage, "only an admin may do that");
}

Status Registry::set_roles(const std::optional<Caller>& by, const NodeId& node, Roles roles) {
    std::lock_guard lock(mutex_);
    if (Status ok = require_admin(by); !ok) return ok;
    if ((roles & ~kAllRoles) != 0) return fail(ErrorKind::usage, "unknown roles: {:#x}", roles & ~kAllRoles);
    const NodeRecord* record = known(node);
    if (record == nullptr) return fail(ErrorKind::usage, "no node {} is registered", to_hex(node));
    NodeRecord changed = *record;
    changed.roles = roles;
    return save(std::move(changed));
}

Status Registry::revoke(const std::optional<Caller>& by, const NodeId& node) {
    std::lock_guard lock(mutex_);
    if (Status ok = require_admin(by); !ok) return ok;
    const NodeRecord* record = known(node);
    if (record == nullptr) return fail(ErrorKind::usage, "no node {} is registered", to_hex(node));
    NodeRecord changed = *record;
    changed.revoked = true;
    ++changed.generation;
    return save(std::move(changed));
}

Status Registry::revoke_tokens(const Caller& by) {
    std::lock_guard lock(mutex_);
    const NodeRecord* record = known(by.node);
    if (record == nullptr) return fail(ErrorKind::usage, "no node {} is registered", to_hex(by.node));
    NodeRecord changed = *record;
    ++changed.generation;
    return save(std::move(changed));
}

std::optional<NodeRecord> Registry::find(const NodeId& node) const {
    std::lock_guard lock(mutex_);
    const NodeRecord* record = known(node);
    return record == nullptr ? std::nullopt : std::optional(*record);
}

std::size_t Registry::size() const {
    std::lock_guard lock(mutex_);
    return nodes_.size();
}

}  // namespace kvasir::market
