// The manifest: a model's identity. It lists every slab with its place and SHA-256 under one root digest, the model id.
// File format: docs/manifest.md.
#pragma once

#include <atomic>
#include <filesystem>
#include <string>
#include <vector>

#include "base/sha256.h"
#include "gguf/expert_map.h"
#include "gguf/piece.h"

namespace kvasir {

// The digests of one expert tensor's slabs, in expert order, and where they are.
struct ManifestTensor {
    Role role = Role::gate;
    std::string name;
    std::uint32_t type = 0;
    std::array<std::uint64_t, 4> shape = {1, 1, 1, 1};
    std::uint32_t file = 0;
    std::uint64_t offset = 0;
    std::uint64_t slab_bytes = 0;
    std::vector<Digest> slabs;
};

struct ManifestLayer {
    std::uint32_t layer = 0;
    std::uint32_t experts = 0;
    std::uint64_t hidden = 0;
    std::uint64_t ff = 0;
    Recipe recipe;
    std::vector<ManifestTensor> tensors;

    const ManifestTensor* find(Role role) const;
};

struct ManifestFile {
    std::string name;  // no directory
    std::uint64_t size = 0;
};

struct Manifest {
    std::string architecture;
    std::string name;
    std::uint32_t block_count = 0;
    std::uint32_t experts_used = 0;
    std::vector<ManifestFile> files;
    std::vector<ManifestLayer> layers;
    // URLs of directories on web servers that have these files under these names. Advice, not identity.
    std::vector<std::string> mirrors = {};

    const ManifestLayer* find(std::uint32_t layer) const;
    // The root digest over architecture, geometry, recipes and slab digests. It does not depend on the file layout
    // (a split model has the same id), nor on the dense part, nor on mirrors.
    Digest model_id() const;
};

// What a manifest may hold; publish() refuses models beyond it.
inline constexpr std::uint64_t kMaxManifestBytes = std::uint64_t{64} << 20;
inline constexpr std::uint64_t kMaxManifestSlabs = 600'000;
inline constexpr std::size_t kMaxManifestMirrors = 64;

// The manifest's customary place: "<model>.kvasir.json" beside the model (its first split, whichever is named).
std::filesystem::path manifest_path(const std::filesystem::path& model);

// Bounded and checked: every digest, count and size; the stored model id must be the computed one.
Result<Manifest> parse_manifest(std::string_view json);
Result<Manifest> load_manifest(const std::filesystem::path& path);
std::string to_json(const Manifest& manifest);

struct PublishOptions {
    int threads = 1;
    bool quiet = false;                         // no progress
    std::filesystem::path journal = {};         // digests done so far, so that a killed run resumes; empty: none
    const std::atomic<bool>* cancel = nullptr;  // when set by anybody: ends with ErrorKind::unavailable
};

struct PublishReport {
    Manifest manifest;
    std::uint64_t hashed_bytes = 0;   // in this run
    std::uint64_t resumed_bytes = 0;  // taken from the journal
    double seconds = 0;
    double cpu_seconds = 0;  // of all hashing threads together
};

// Hashes every slab of a complete model. An error if the model's files change meanwhile. With a journal, an interrupted
// run (a kill at any moment) is taken up where it ended as long as the model's files have the same sizes and times; the
// journal stays until its owner deletes it. Two runs at once on one journal: the second is refused.
Result<PublishReport> publish(const GgufModel& model, const ExpertMap& map, const PublishOptions& options);

// publish() with the manifest written to `out`, atomically; its journal, "<out>.part", goes once that is done.
Result<PublishReport> publish_to(const std::filesystem::path& out, const GgufModel& model, const ExpertMap& map,
                                 PublishOptions options);

// Every tensor of the map agrees with the manifest in name, type, shape and place, and so do architecture, geometry and
// recipes: cheap, no data read. ErrorKind::invalid says what differs.
Status matches(const Manifest& manifest, const ExpertMap& map);

}  // namespace kvasir
