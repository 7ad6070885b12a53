// One worker, as the backbone sees it: the connection and its return after a loss, the handshake, requests in flight,
// how fast it answers, and whether it is trusted with requests at present.
#pragma once

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "backbone/call_plan.h"
#include "backbone/dispatcher.h"
#include "backbone/latency_model.h"
#include "backbone/probe_shapes.h"
#include "net/connection.h"
#include "wire/messages.h"

namespace kvasir {

using SteadyTime = std::chrono::steady_clock::time_point;

// What becomes of a request: exactly one of the two is called, once, on an io thread, unless it was cancelled first.
class ReplyHandler {
  public:
    virtual ~ReplyHandler() = default;
    // `ticket` is the asker's name for the request. rows: [pairs][hidden], gone after the call.
    virtual void answered(std::uint32_t ticket, std::span<const float> rows, double compute_seconds) = 0;
    virtual void failed(std::uint32_t ticket) = 0;
};

struct LinkConfig {
    WorkerEndpoint endpoint;
    std::shared_ptr<const Identity> identity;
    Digest model_id{};
    Arithmetic arithmetic = Arithmetic::portable;
    LinkTiming timing;
    std::chrono::milliseconds deadline{2000};
    Auditor* auditor = nullptr;  // may be null; outlives all requests
};

// All members are thread-safe; none waits. A link is driven by `tick`, by its connection, and by its callers.
class WorkerLink : public AuditSubject, public std::enable_shared_from_this<WorkerLink> {
  public:
    // `changed` is called, with no lock held, after the state or the pieces changed.
    WorkerLink(boost::asio::io_context& context, LinkConfig config, std::shared_ptr<ProbeShapes> shapes,
               std::function<void()> changed);

    // Begins, retries, probes, pings and gives up what is due. To be called every few ten milliseconds.
    void tick(SteadyTime now);
    // Ends the connection for good; requests in flight fail.
    void stop();

    // What it would cost now to ask for about `pairs` rows; none where it can't be asked, or, unless `unmeasured`,
    // where nothing is known yet. `worker` is left for the caller to fill.
    std::optional<Quote> quote(std::uint32_t pairs, bool unmeasured) const;
    // The most pairs that fit into one request.
    std::uint32_t largest_request(const ExpertCall& call) const;

    struct Asked {
        std::uint64_t id = 0;
        SteadyTime deadline;
        SteadyTime expected;  // the deadline, while nothing is known
    };
    // Sends a request. None if it can't be asked (any more), or its piece set isn't `compute.epoch`'s.
    std::optional<Asked> ask(const Compute& compute, std::shared_ptr<ReplyHandler> handler, std::uint32_t ticket);
    // An answer was used; for the statistics.
    void used(std::uint64_t pairs);
    // An answer is overdue: sets the worker aside. The request stays, the answer may still come.
    void missed(std::uint64_t id);
    // The answer is no longer wanted. Nothing where it is there already.
    void cancel(std::uint64_t id);

    void acquitted(std::uint64_t stamp) override;
    // It is asked no more.
    void convicted(const std::string& what) override;

    // What it holds now: nothing unless connected.
    ReplicaBook::Entry pieces() const;
    WorkerStatus status() const;
    std::uint64_t bytes_sent() const;
    std::uint64_t bytes_received() const;

  private:
    enum class Phase { idle, connecting, handshake, up, stopped };
    // A pair of a request that is audited, whenever its answer comes.
    struct Sample {
        std::uint32_t place = 0;  // among the request's pairs
        AuditQuestion question;
        ByteVector answer;  // once it has come
    };
    // Answered, but not signed yet.
    struct Unsigned {
        SteadyTime since;
        std::uint64_t stamp = 0;  // pairs_used_ then
        bool urgent = false;
        std::vector<Sample> samples;
    };
    struct Request {
        std::shared_ptr<ReplyHandler> handler;  // null: a probe
        std::uint32_t ticket = 0;
        std::uint32_t pairs = 0;
        std::uint32_t hidden = 0;
        std::uint64_t epoch = 0;
        std::uint32_t layer = 0;
        SteadyTime sent;
        SteadyTime deadline;
        std::vector<Sample> samples;
    };
    using Requests = std::unordered_map<std::uint64_t, Request>;
    // What is to be done once the lock is released.
    struct Aftermath {
        std::vector<Request> failed;
        std::vector<Unsigned> unproven;  // whose signatures will not come
        ConnectionPtr to_close;
        Error reason;
        bool changed = false;
    };

    void connected(std::uint64_t generation, Result<ConnectionPtr> result);
    void on_frame(std::uint64_t generation, Frame&& frame);
    void on_close(std::uint64_t generation, const Error& error);
    void handle_welcome(const Frame& frame, Aftermath& after);
    void handle_error(const Frame& frame, Aftermath& after);
    void handle_update(const Frame& frame, Aftermath& after);
    void handle_result(std::uint64_t generation, const Frame& frame, Aftermath& after);
    void finish(Aftermath& after);
    // An answer that is what was asked for.
    struct Answer {
        ByteSpan encoded;             // [pairs] rows, of the frame
        std::span<const float> rows;  // [pairs][hidden]: of the frame, or decoded
        std::vector<float> decoded;
        double compute = 0;  // seconds
    };
    double share_to_audit() const;
    std::vector<Sample> draw_samples(const Compute& compute, double share) const;
    static void fill_samples(std::vector<Sample>& samples, ByteSpan rows);
    // False if this machine was asked to check at once (Auditor::strict()) and found another answer.
    bool trusted_now(const std::vector<Sample>& samples) const;
    void audit(std::uint64_t generation, std::uint64_t id, std::vector<Sample> samples, bool urgent);
    void submit(Unsigned open, std::shared_ptr<const SignedAnswers> proof);
    Result<Answer> read_answer(const Frame& frame, const Request& request) const;

    // All below: with mutex_ held.
    Status check_welcome(const Welcome& welcome) const;
    void probe_or_serve(SteadyTime now);
    void send_probe(const Probe& probe, SteadyTime now);
    std::uint64_t enter(Request request);
    void watch_liveness(SteadyTime now, Aftermath& after);
    void await_signature(std::uint64_t id, Unsigned open);
    void handle_attestation(const Frame& frame, Aftermath& after);
    void demand_signatures(SteadyTime now, Aftermath& after);
    // It is asked no more until its audit has come to a verdict.
    void doubt(SteadyTime now);
    void lose(const Error& reason, bool refused, Aftermath& after);
    std::optional<Request> take_request(std::uint64_t id);
    void forget(std::uint64_t id);
    void set_aside(std::string reason, SteadyTime now);
    void good_answer(const Request& request, bool probe, double compute, SteadyTime now);
    void drop_layer(std::uint32_t layer);
    bool usable() const;
    WorkerStatus::State state() const;
    void announce(Aftermath& after);
    double jitter(double seconds);
    ByteVector encode_hello() const;  // without mutex_

    boost::asio::io_context& context_;
    const LinkConfig config_;
    const std::string name_;
    const std::shared_ptr<ProbeShapes> shapes_;
    const std::function<void()> changed_;

    mutable std::mutex mutex_;
    Phase phase_ = Phase::idle;
    std::uint64_t generation_ = 0;  // of the connection; what an earlier one still reports is ignored
    ConnectionPtr connection_;
    SteadyTime retry_at_;
    SteadyTime handshake_until_;
    std::uint32_t lost_in_a_row_ = 0;
    bool refused_ = false;

    std::uint64_t epoch_ = 0;
    std::vector<Piece> pieces_;
    std::uint64_t their_limit_ = 0;
    std::uint64_t our_limit_ = kControlPayloadLimit;
    std::uint32_t window_ = 0;
    bool draining_ = false;

    bool on_probation_ = false;  // not to be asked before a probe was answered
    std::uint32_t strikes_ = 0;
    SteadyTime last_strike_;
    SteadyTime probe_at_;
    std::optional<std::uint64_t> probe_;
    std::uint64_t calls_at_probe_ = 0;

    std::uint64_t next_id_ = 1;
    Requests requests_;
    std::map<std::uint64_t, Request> late_;  // cancelled, but sampled: their answers may still come
    std::map<std::uint64_t, Unsigned> unsigned_;
    std::uint64_t unsigned_seen_ = 0;  // since it was last empty
    bool doubted_ = false;
    std::uint64_t pairs_in_flight_ = 0;
    LatencyModel latency_;
    SteadyTime last_answer_;

    std::uint64_t seen_bytes_ = 0;
    SteadyTime last_sign_;  // of life
    std::optional<SteadyTime> pinged_;

    std::string reason_;
    WorkerStatus::State announced_ = WorkerStatus::State::connecting;
    std::string announced_reason_;
    std::uint64_t pairs_used_ = 0;
    std::uint64_t failures_ = 0;
    std::uint64_t audits_ = 0;
    std::uint64_t pairs_trusted_ = 0;  // pairs_used_ at the last answer that was found right
    std::uint64_t earlier_sent_ = 0;   // by connections that ended
    std::uint64_t earlier_received_ = 0;
    std::minstd_rand random_;
};

}  // namespace kvasir
