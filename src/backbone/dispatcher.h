// The dispatcher: (layer, rows, selected ids) → out. It knows nothing of ggml or llama.cpp. Each pair is answered by a
// worker that holds it, or by the local replica; where, never changes a bit. Synchronous to its caller, all I/O on its
// own threads; no lock is held across a wait, and every wait has a deadline.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backbone/auditor.h"
#include "base/result.h"
#include "expert/arithmetic.h"
#include "expert/pair.h"
#include "expert/row_encoding.h"
#include "gguf/recipe.h"
#include "net/address.h"
#include "net/identity.h"

namespace kvasir {

// The whole batch of one layer.
struct ExpertCall {
    std::uint32_t layer = 0;
    std::uint32_t hidden = 0;
    Recipe recipe;
    RowEncoding row_encoding = RowEncoding::f32;
    ByteSpan rows;                // [n] of row_bytes(row_encoding, hidden), 4-byte aligned
    std::span<const Pair> pairs;  // global expert ids
    std::span<float> out;         // [pairs][hidden]

    std::size_t row_size() const { return row_bytes(row_encoding, hidden); }
    std::size_t row_count() const { return rows.size() / row_size(); }
};

// The local replica: computes any subset of a call's pairs on the caller's thread.
class LocalExperts {
  public:
    virtual ~LocalExperts() = default;
    // out: [pairs][hidden], in the order of `pairs` (rows index the call's rows).
    virtual Status compute(const ExpertCall& call, std::span<const Pair> pairs, std::span<float> out) = 0;
};

struct WorkerEndpoint {
    Address address;
    std::optional<NodeId> id;  // none: without TLS, loopback only
};
// "HOST:PORT#NODEID" (64 hex digits), or "HOST:PORT" where `insecure` allows connections without TLS.
Result<WorkerEndpoint> parse_worker(std::string_view text, bool insecure);

// How a connection to a worker is kept. The defaults suit LAN and WAN; tests shorten them.
struct LinkTiming {
    std::chrono::milliseconds connect{5000};         // for TCP, TLS and the handshake, each
    std::chrono::milliseconds reconnect_first{100};  // doubles with every failure, with jitter, up to …
    std::chrono::milliseconds reconnect_longest{10'000};
    std::chrono::milliseconds refused_retry{30'000};  // where the worker can't serve this backbone as it is
    std::chrono::milliseconds ping_interval{2000};    // after this long without a byte
    std::chrono::milliseconds ping_deadline{5000};
    std::chrono::milliseconds set_aside_first{100};  // doubles with every failure, up to …
    std::chrono::milliseconds set_aside_longest{30'000};
    std::chrono::milliseconds forgiven_after{5000};   // one failure is forgotten per this long of good service
    std::chrono::milliseconds refresh{500};           // a worker nobody asks for this long is measured again
    std::chrono::milliseconds shortest_deadline{25};  // of a request: below is the scheduler's noise
    std::chrono::milliseconds signature{5000};        // an answer that is audited is signed within this, with TLS
};

struct SwarmConfig {
    std::vector<WorkerEndpoint> workers;
    std::shared_ptr<const Identity> identity;  // null: only endpoints without id
    Digest model_id{};
    Arithmetic arithmetic = Arithmetic::portable;
    // The longest a call waits for a worker before it is hedged; what a worker's own latencies call for is used below.
    // A worker is not asked for more than it is expected to answer in half of it: of a very large batch the rest is
    // computed here meanwhile.
    std::chrono::milliseconds deadline{2000};
    LinkTiming timing;
    std::shared_ptr<AuditReference> audit_reference;  // null: no audits
    AuditBudget audit_budget;
    std::shared_ptr<AuditReference> strict_reference;  // with it, what is audited is checked before it is used
    std::filesystem::path evidence;                    // a directory, for signed wrong answers; empty: not kept
    // Every pair a worker holds goes to a worker, even where the cost model would compute it here. For proofs and
    // tests.
    bool prefer_remote = true;
};

struct WorkerStatus {
    WorkerEndpoint endpoint;
    enum class State { connecting, serving, set_aside, draining, refused } state = State::connecting;
    std::string reason;  // why it is not serving
    std::uint64_t experts_held = 0;
    std::uint64_t pairs = 0;  // answered in time and used
    std::uint64_t failures = 0;
    std::uint64_t audits = 0;  // of its answers, that were right
    double latency_ms = 0;     // recent median per call; 0 where unknown
};

// "serving", "set aside", …
const char* state_name(WorkerStatus::State state);

struct SwarmStats {
    std::uint64_t calls = 0;
    std::uint64_t pairs_local = 0;
    std::uint64_t pairs_remote = 0;
    std::uint64_t pairs_hedged = 0;  // asked of a worker first, then answered elsewhere
    std::uint64_t bytes_sent = 0;
    std::uint64_t bytes_received = 0;
    double seconds_overhead = 0;  // waiting beyond the workers' own compute time
    std::vector<WorkerStatus> workers;
};

class Dispatcher {
  public:
    // Starts connecting to all workers at once, in the background.
    static Result<std::unique_ptr<Dispatcher>> create(SwarmConfig config);
    virtual ~Dispatcher() = default;

    // Fills all of call.out or fails; an error means the local replica itself failed. One call at a time per thread;
    // several threads may call at once.
    virtual Status compute(const ExpertCall& call, LocalExperts& local) = 0;

    // Waits until every worker serves or is refused for good, at most `timeout`. True if all serve.
    virtual bool wait_for_workers(std::chrono::milliseconds timeout) = 0;
    virtual SwarmStats stats() const = 0;
};

}  // namespace kvasir
