#include "market/population.h"

#include <algorithm>

namespace kvasir::market {
namespace {

constexpr double kDay = 24 * 60;
constexpr std::uint64_t kMegabyte = 1'000'000;
constexpr std::uint32_t kTogether = 4;  // nodes of one owner, or at one site

NodeKind kind_of(std::uint32_t index) {
    if (index % 10 == 9) return NodeKind::server;
    return index % 10 >= 6 ? NodeKind::laptop : NodeKind::phone;
}

std::uint64_t megabytes(Random& random, double low, double high) {
    return static_cast<std::uint64_t>(random.between(low, high)) * kMegabyte;
}

Budget make_budget(NodeKind kind, Random& random) {
    Budget budget;
    switch (kind) {
        case NodeKind::phone:
            budget.memory_bytes = megabytes(random, 150, 600);
            budget.download_bytes_per_s = megabytes(random, 2, 8);
            budget.read_bytes_per_s = megabytes(random, 3000, 8000);
            budget.download_time = std::chrono::minutes(3);
            break;
        case NodeKind::laptop:
            budget.memory_bytes = megabytes(random, 1000, 4000);
            budget.download_bytes_per_s = megabytes(random, 5, 20);
            budget.read_bytes_per_s = megabytes(random, 8000, 20000);
            budget.download_time = std::chrono::minutes(15);
            break;
        case NodeKind::server:
            budget.memory_bytes = megabytes(random, 4000, 12000);
            budget.download_bytes_per_s = megabytes(random, 20, 100);
            budget.read_bytes_per_s = megabytes(random, 20000, 60000);
            budget.download_time = std::chrono::minutes(20);
            break;
    }
    budget.disk_bytes = 4 * budget.memory_bytes;
    return budget;
}

std::string make_address(std::uint32_t site, std::uint32_t host) {
    return fmt::format("{}.{}.{}.{}", 10 + (site >> 16), (site >> 8) & 255, site & 255, host);
}

}  // namespace

const char* name(NodeKind kind) {
    switch (kind) {
        case NodeKind::phone:
            return "phone";
        case NodeKind::laptop:
            return "laptop";
        case NodeKind::server:
            return "server";
    }
    return "unknown";
}

std::vector<VirtualNode> make_population(std::uint32_t nodes, Random& random) {
    std::vector<VirtualNode> population(nodes);
    std::uint32_t site = 0;
    std::uint32_t host = 0;
    std::uint32_t owner = nodes;  // nodes of their own are their own owners, numbered as they are
    std::uint32_t owned = 0;
    for (std::uint32_t i = 0; i < nodes; ++i) {
        VirtualNode& node = population[i];
        node.kind = kind_of(i);
        for (std::byte& byte : node.key)
            byte = static_cast<std::byte>(random.below(256));
        node.budget = make_budget(node.kind, random);
        if (!random.chance(0.1) || ++host >= kTogether) {
            ++site;
            host = 0;
        }
        node.address = make_address(site, host + 1);
        node.owner = i;
        if (random.chance(0.1)) {
            node.owner = owner;
            if (++owned % kTogether == 0) ++owner;
        }
        node.night_from = random.between(19.5, 23);
        node.night_to = random.between(5.5, 9);
        node.liar = random.chance(0.005);
    }
    return population;
}

std::uint32_t minutes_here(const VirtualNode& node, std::uint64_t minute, Random& random) {
    const double of_day = static_cast<double>(minute % static_cast<std::uint64_t>(kDay));
    double here = 0;
    switch (node.kind) {
        case NodeKind::phone:
            here = 2 + random.exponential(25);
            break;
        case NodeKind::laptop:
            here = node.night_to * 60 + random.between(-30, 30) - of_day;
            if (here <= 0) here += kDay;
            break;
        case NodeKind::server:
            here = random.exponential(5 * kDay);
            break;
    }
    return static_cast<std::uint32_t>(std::max(1.0, here));
}

std::uint32_t minutes_away(const VirtualNode& node, std::uint64_t minute, Random& random) {
    const double of_day = static_cast<double>(minute % static_cast<std::uint64_t>(kDay));
    double away = 0;
    switch (node.kind) {
        case NodeKind::phone:
            away = 5 + random.exponential(7 * 60);
            break;
        case NodeKind::laptop:
            away = node.night_from * 60 + random.between(-30, 30) - of_day;
            if (away <= 0) away += kDay;
            if (random.chance(0.15)) away += kDay;  // not every night
            break;
        case NodeKind::server:
            away = random.between(4, 15);
            break;
    }
    return static_cast<std::uint32_t>(std::max(1.0, away));
}

}  // namespace kvasir::market
