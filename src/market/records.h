// What a hub remembers, as plain data. A Store keeps it; the market and the registry make sense of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "market/clock.h"
#include "market/offer.h"
#include "market/rules.h"
#include "net/signature.h"
#include "wire/messages.h"

namespace kvasir::market {

// The node id of the key that stands for an owner; a node that names none is its own.
using OwnerId = NodeId;

// Bits of NodeRecord::roles. Values are stored: never renumber.
enum RoleBit : std::uint32_t {
    kWorker = 1,    // may lease experts
    kBackbone = 2,  // may report demand and probes, and sign receipts
    kAdmin = 4,     // may give and take roles, and revoke
};
using Roles = std::uint32_t;

struct NodeRecord {
    NodeId id{};
    PublicKey key{};
    OwnerId owner{};
    Roles roles = 0;
    Instant registered{};
    std::uint32_t generation = 0;  // tokens of an earlier one are revoked
    bool revoked = false;
    bool operator==(const NodeRecord&) const = default;
};

// What the market knows of a node apart from its lease.
struct WorkerRecord {
    NodeId id{};
    std::uint64_t epoch = 0;  // the last one given out
    std::uint32_t failures = 0;
    Instant failed{};        // the last time
    Instant barred_until{};  // no lease before
    Instant moved{};         // last time it gave up pieces for others, or began
    bool operator==(const WorkerRecord&) const = default;
};

enum class LeaseEnd : std::uint8_t {
    live = 0,
    replaced = 1,   // by a later epoch of the same node
    released = 2,   // by the node
    expired = 3,    // no heartbeat
    unproved = 4,   // nothing of it was proved in time
    convicted = 5,  // a probe failed: receipts of this epoch pay nothing
    revoked = 6,    // the node may not take part any more
};
const char* name(LeaseEnd end);

// A run of experts of one layer at one rate.
struct LeasedPiece {
    Piece piece;
    Rate rate = 0;
    Instant since{};   // leased, or last proof run out
    Instant proved{};  // proof good until; not after `since`: none
    bool serving() const { return proved > since; }
    bool operator==(const LeasedPiece&) const = default;
};

// One epoch of one node's lease; an epoch's pieces and rates never change, their proofs do.
struct LeaseRecord {
    NodeId node{};
    std::uint64_t epoch = 0;
    ModelId model{};
    OwnerId owner{};
    std::string site;
    Instant granted{};
    Instant priced{};                 // the rates are of then
    std::vector<LeasedPiece> pieces;  // sorted, disjoint
    LeaseEnd end = LeaseEnd::live;
    Instant ended{};
    bool operator==(const LeaseRecord&) const = default;
};

// Measured popularity of one layer, per expert: decayed rows and misses a second.
struct LoadRecord {
    ModelId model{};
    std::uint32_t layer = 0;
    Instant at{};
    std::vector<float> rows;
    std::vector<float> misses;
    bool operator==(const LoadRecord&) const = default;
};

// One paid line of a receipt, in the ledger for good.
struct Entry {
    std::uint64_t number = 0;  // from 1, without gaps
    Instant at{};              // the hub's time of settlement; its UTC day is the entry's day
    OwnerId owner{};           // who is paid
    NodeId worker{};
    NodeId backbone{};
    std::uint64_t sequence = 0;
    std::uint32_t line = 0;
    ModelId model{};
    Piece piece;
    std::uint64_t epoch = 0;
    std::uint64_t rows = 0;
    std::uint64_t expert_bytes = 0;
    Rate rate = 0;
    Micros amount = 0;
    Digest previous{};  // hash of the entry before, zero for the first
    Digest hash{};
    bool operator==(const Entry&) const = default;
};

// A receipt that was settled: what makes a second one of the same number a repetition.
struct SettledReceipt {
    NodeId backbone{};
    std::uint64_t sequence = 0;
    Digest digest{};  // of the signed bytes
    Instant at{};
    Micros paid = 0;
    bool operator==(const SettledReceipt&) const = default;
};

// One change to what is remembered, besides the ledger. A LeaseRecord replaces the one of the same node and epoch.
using Change = std::variant<Offer, NodeRecord, WorkerRecord, LeaseRecord, LoadRecord>;

}  // namespace kvasir::market
