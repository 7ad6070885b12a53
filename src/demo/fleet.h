// The demo's workers: three processes whose pieces overlap so that every expert is held twice.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/child_process.h"
#include "base/result.h"
#include "gguf/expert_map.h"
#include "gguf/manifest.h"
#include "gguf/piece.h"
#include "net/identity.h"

namespace kvasir {

inline constexpr std::size_t kFleetSize = 3;

// One third of every layer's experts is left out by each worker, a different one by each.
std::vector<Piece> fleet_pieces(const ExpertMap& map, std::size_t worker);

struct FleetWorker {
    std::filesystem::path slice;
    std::vector<Piece> pieces;
    std::string endpoint;  // HOST:PORT#NODEID
    std::unique_ptr<ChildProcess> process;
};

// Cuts the slices into `directory`.
Result<std::vector<FleetWorker>> cut_fleet(const GgufModel& model, const ExpertMap& map, const Manifest& manifest,
                                           const std::filesystem::path& directory);

// Starts a process per slice, on loopback ports that the system chooses, each with an identity of its own and admitting
// `backbone` alone; returns when all are ready.
Status start_fleet(std::vector<FleetWorker>& fleet, const std::filesystem::path& program, const NodeId& backbone,
                   const std::filesystem::path& directory);

}  // namespace kvasir
