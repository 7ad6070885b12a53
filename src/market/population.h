// The virtual nodes of a simulation: what they give, and when they are there.
#pragma once

#include <string>
#include <vector>

#include "market/choice.h"
#include "market/random.h"
#include "market/registry.h"

namespace kvasir::market {

enum class NodeKind : std::uint8_t { phone, laptop, server };
inline constexpr int kNodeKinds = 3;
const char* name(NodeKind kind);

struct VirtualNode {
    NodeKind kind = NodeKind::phone;
    PublicKey key{};
    std::string address;
    std::uint32_t owner = 0;  // nodes with the same number have one owner
    Budget budget;
    double night_from = 0;  // hour of the day a laptop comes, and goes
    double night_to = 0;
    bool liar = false;  // announces pieces that it has not got
};

// Of ten nodes six are phones (150-600 MB, for minutes), three laptops (1-4 GB, at night), one a server (4-12 GB,
// always but for reboots). One in ten shares its site, one in ten its owner, with three others; one in 200 lies.
std::vector<VirtualNode> make_population(std::uint32_t nodes, Random& random);

// Minutes until a node that came stays, and until one that left comes back, at this minute since midnight of day 0.
std::uint32_t minutes_here(const VirtualNode& node, std::uint64_t minute, Random& random);
std::uint32_t minutes_away(const VirtualNode& node, std::uint64_t minute, Random& random);

}  // namespace kvasir::market
