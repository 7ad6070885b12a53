// One backbone's connection, as the worker sees it: handshake, requests, answers.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "net/connection.h"
#include "wire/messages.h"
#include "worker/answer_signer.h"
#include "worker/batcher.h"
#include "worker/log_throttle.h"
#include "worker/piece_store.h"

namespace kvasir {

// Two requests hold the pairs of 512 tokens, eight experts each, at 3072 columns; and with one answer on its way and
// one being made, a worker stays within 64 MiB beyond its weights.
inline constexpr std::uint64_t kDefaultPayloadLimit = std::uint64_t{25} << 20;

struct SessionTiming {
    std::chrono::milliseconds hello{10'000};  // from the connection to HELLO
    std::chrono::milliseconds idle{15'000};   // without a byte from the backbone: it is pinged
    std::chrono::milliseconds dead{45'000};   // … and given up
};

// What all sessions of a worker share; outlives them.
struct SessionContext {
    const PieceStore* store = nullptr;
    Batcher* batcher = nullptr;
    LogThrottle* refusals = nullptr;
    std::shared_ptr<const Identity> identity;  // what sessions with TLS sign their answers with
    std::string build;
    std::uint32_t threads = 1;
    std::uint32_t window = 8;  // compute requests unanswered at once, per session
    // Of requests, and of the answers it is ready to make: what a worker's memory beyond its weights is made of.
    std::uint64_t payload_limit = kDefaultPayloadLimit;
    SessionTiming timing;
    std::function<std::uint32_t()> session_count;
};

// Thread-safe. Kept alive by its connection's handlers.
class Session : public std::enable_shared_from_this<Session> {
  public:
    using Clock = std::chrono::steady_clock;

    Session(ConnectionPtr connection, const SessionContext& context);

    // `on_end` is called once, when the connection has ended.
    void start(std::function<void(const std::shared_ptr<Session>&)> on_end);
    // Pings an idle backbone and ends a dead or silent one; call about once a second.
    void tick(Clock::time_point now);
    // Sends DRAIN; from now on requests are refused.
    void drain();
    void close(Error reason);
    // Node id, or address where there is no TLS.
    const std::string& name() const { return name_; }

  private:
    void on_frame(Frame&& frame);
    void on_close(const Error& reason);
    void on_hello(const Frame& frame);
    void on_compute(Frame&& frame);
    void on_cancel(std::uint64_t request);
    // The job, checked, or the code and text of what is wrong with it.
    tl::expected<JobPtr, WireError> make_job(Frame&& frame);
    tl::expected<void, WireError> place_pairs(Job& job) const;
    void submit(std::uint64_t request, JobPtr job);
    void answer(std::uint64_t request, const Job* job, Result<ResultBuffer> result);
    void send_result(std::uint64_t request, const Job& job, ByteVector payload, ByteSpan rows);
    void attest(std::vector<ByteVector> payloads);
    std::shared_ptr<AnswerSigner> signer();
    void refuse(std::uint64_t request, const WireError& error);

    const ConnectionPtr connection_;
    const SessionContext& context_;
    const Clock::time_point opened_ = Clock::now();
    std::string name_;
    std::string source_;  // for the log throttle: without the port
    std::function<void(const std::shared_ptr<Session>&)> on_end_;

    std::mutex mutex_;  // guards the rest; not held while the connection or the batcher is called
    bool greeted_ = false;
    bool draining_ = false;
    bool ended_ = false;
    Arithmetic arithmetic_ = Arithmetic::portable;
    std::shared_ptr<AnswerSigner> signer_;  // null before HELLO and without TLS
    std::uint64_t result_limit_ = 0;
    std::unordered_map<std::uint64_t, JobPtr> pending_;
    std::uint64_t bytes_seen_ = 0;
    Clock::time_point last_sign_ = opened_;
    Clock::time_point last_ping_{};
};

}  // namespace kvasir
