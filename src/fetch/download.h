// The partial download: a slice made from byte ranges of a model's files, wherever they can be had.
#pragma once

#include <atomic>
#include <filesystem>
#include <vector>

#include "fetch/source.h"
#include "gguf/piece.h"
#include "http/client.h"

namespace kvasir::fetch {

struct FetchOptions {
    int connections = 4;                        // at once, over all sources
    std::chrono::seconds patience{120};         // without a single byte from anybody; then it is given up
    bool quiet = false;                         // no progress
    http::ClientOptions client = {};            // deadlines; trust and cancel are set for each source
    const std::atomic<bool>* cancel = nullptr;  // when set by anybody: ends with ErrorKind::unavailable
};

struct FetchReport {
    std::uint64_t size = 0;           // of the slice
    std::uint64_t slab_bytes = 0;     // of weights in it
    std::uint64_t moved_bytes = 0;    // received from all sources, in this run
    std::uint64_t resumed_bytes = 0;  // were there before, from an earlier run
    std::uint64_t requests = 0;
    double seconds = 0;
    std::vector<SourceReport> sources;
};

// Makes `out` the slice of `pieces`, byte for byte what `kvasir slice` cuts from the model itself. Nothing is moved if
// it is that already; of a damaged one only the damaged slabs are. Every slab is hashed before it counts; `out` appears
// when all are there. What was received by an interrupted run (a kill at any moment, a full disk) is not asked for
// again: it lies in "<out>.part" and "<out>.part.journal". Sources that lie, stall or lack the file are named in the
// report and the log, and the others are used.
//
// ErrorKind::usage for pieces the model does not have; ErrorKind::io when the disk refuses; ErrorKind::unavailable when
// nobody can be reached any more, when interrupted, or when another process downloads to the same file;
// ErrorKind::invalid when every source was found out to be lying.
Result<FetchReport> fetch_slice(const Manifest& manifest, const std::vector<Piece>& pieces,
                                const std::vector<Source>& sources, const std::filesystem::path& out,
                                const FetchOptions& options);

}  // namespace kvasir::fetch
