#include "demo/fleet.h"

#include <fmt/format.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "base/interrupt.h"
#include "gguf/slice.h"

namespace kvasir {
namespace {

constexpr std::chrono::seconds kStartPatience{60};

// "127.0.0.1:40123#<id>" from the line with which a worker says that it is ready.
Result<std::string> endpoint_of(const std::string& line) {
    const nlohmann::json ready = nlohmann::json::parse(line, nullptr, false);
    if (!ready.is_object() || !ready.contains("address") || !ready["address"].is_string() || !ready.contains("id") ||
        !ready["id"].is_string()) {
        return fail(ErrorKind::internal, "not a worker's ready line: {}", line);
    }
    return fmt::format("{}#{}", ready["address"].get<std::string>(), ready["id"].get<std::string>());
}

}  // namespace

std::vector<Piece> fleet_pieces(const ExpertMap& map, std::size_t worker) {
    std::vector<Piece> pieces;
    for (const ExpertLayer& layer : map.layers) {
        const auto boundary = [&](std::size_t third) {
            return static_cast<std::uint32_t>(third * layer.experts / kFleetSize);
        };
        for (std::size_t third = 0; third < kFleetSize; ++third) {
            const std::uint32_t first = boundary(third);
            const std::uint32_t count = boundary(third + 1) - first;
            if (third != worker && count > 0) pieces.push_back({layer.layer, first, count});
        }
    }
    return normalized(std::move(pieces));
}

Result<std::vector<FleetWorker>> cut_fleet(const GgufModel& model, const ExpertMap& map, const Manifest& manifest,
                                           const std::filesystem::path& directory) {
    std::vector<FleetWorker> fleet(kFleetSize);
    for (std::size_t i = 0; i < fleet.size(); ++i) {
        fleet[i].slice = directory / fmt::format("slice{}.gguf", i + 1);
        fleet[i].pieces = fleet_pieces(map, i);
        Result<SliceReport> cut =
            write_slice(model, map, &manifest, fleet[i].pieces, fleet[i].slice, false, &interruption());
        if (!cut) return fail(cut.error());
    }
    return fleet;
}

Status start_fleet(std::vector<FleetWorker>& fleet, const std::filesystem::path& program, const NodeId& backbone,
                   const std::filesystem::path& directory) {
    for (std::size_t i = 0; i < fleet.size(); ++i) {
        ChildOptions options;
        options.arguments = {program.string(),
                             "worker",
                             "--json",
                             "--threads",
                             "1",
                             "--listen",
                             "127.0.0.1:0",
                             "--slice",
                             fleet[i].slice.string(),
                             "--identity",
                             (directory / fmt::format("worker{}.pem", i + 1)).string(),
                             "--admit",
                             to_hex(backbone)};
        Result<std::unique_ptr<ChildProcess>> process = ChildProcess::start(options);
        if (!process) return fail(process.error());
        fleet[i].process = std::move(*process);
    }
    for (std::size_t i = 0; i < fleet.size(); ++i) {
        Result<std::string> line = fleet[i].process->wait_for_line("\"ready\"", kStartPatience);
        if (!line) {
            return fail(line.error().within(
                fmt::format("worker {} did not start: {}", i + 1, fleet[i].process->stderr_text())));
        }
        Result<std::string> endpoint = endpoint_of(*line);
        if (!endpoint) return fail(endpoint.error());
        fleet[i].endpoint = std::move(*endpoint);
    }
    return {};
}

}  // namespace kvasir
