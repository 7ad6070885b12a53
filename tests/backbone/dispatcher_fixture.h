// Workers that speak the real protocol and misbehave on demand, and a function that stands for the experts, so that
// every output can be checked bit by bit.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "backbone/dispatcher.h"
#include "net/connection.h"

namespace kvasir::test {

inline constexpr std::uint32_t kHidden = 24;
Digest test_model();

// What expert `expert` of layer `layer` makes of a row: deterministic, different for every (layer, expert).
void fake_expert(std::uint32_t layer, std::uint32_t expert, std::span<const float> row, std::span<float> out);
// … as it comes back in `arithmetic`: in portable/1 rounded to a result row.
void fake_output(Arithmetic arithmetic, std::uint32_t layer, std::uint32_t expert, std::span<const float> row,
                 std::span<float> out);

// A call with buffers of its own; its rows travel as f32.
struct TestCall {
    Arithmetic arithmetic = Arithmetic::ggml_cpu;  // that its output is to be right in
    std::uint32_t layer = 0;
    std::vector<float> rows;
    std::vector<Pair> pairs;
    std::vector<float> out;

    // `rows` rows of different numbers; every row with every expert of `experts`.
    static TestCall make(std::uint32_t layer, std::uint32_t rows, const std::vector<std::uint32_t>& experts);
    ExpertCall call();
    // Every output row is what its expert makes of its row.
    ::testing::AssertionResult correct() const;
};

class FakeLocal : public LocalExperts {
  public:
    Status compute(const ExpertCall& call, std::span<const Pair> pairs, std::span<float> out) override;

    std::atomic<std::uint64_t> pairs{0};
    std::atomic<bool> fails{false};
    // Set before use.
    std::chrono::milliseconds takes{0};
    Arithmetic arithmetic = Arithmetic::ggml_cpu;
};

enum class Fault {
    none,
    silent,          // never answers
    late,            // answers after FakeWorker::Options::lateness
    wrong_count,     // one row short
    wrong_hidden,    // rows of another width
    error,           // ERROR with Options::error_code
    close,           // ends the connection instead
    garbage,         // a RESULT of random bytes
    duplicate,       // answers twice
    unknown_id,      // answers something never asked for, then what was asked
    epoch_change,    // UPDATE (same pieces, next epoch) and ERROR(epoch)
    drain,           // DRAIN, the answer, and the end of the connection
    other_encoding,  // rows encoded as another arithmetic has them
    bad_exponent,    // a row that no encoder writes; rows of f32, which are any bits, stay right
};
inline constexpr int kFaults = 14;

// How a worker with TLS signs what it answers.
enum class Signing {
    honest,
    never,
    other_answer,      // than the one it gave
    bad_signature,     // one bit of it is wrong
    other_key,         // properly, with a key that is not its own
    twice,             // the same frame again
    unknown_requests,  // besides its answers, some to requests that never were
    before,            // the frame comes before the answer, and none after it
    garbage,           // a frame that is no attestation
};

class FakeWorker {
  public:
    struct Options {
        std::vector<Piece> pieces;
        bool tls = false;
        Signing signing = Signing::honest;
        std::uint32_t window = 64;
        std::uint64_t payload_limit = kPayloadLimit;
        std::string arithmetic = wire_name(Arithmetic::ggml_cpu);
        Digest model_id = test_model();
        std::chrono::milliseconds lateness{100};
        WireErrorCode error_code = WireErrorCode::internal;
        std::optional<WireErrorCode> refusal;  // ERROR instead of WELCOME
        std::function<bool(const NodeId&)> admit = [](const NodeId&) { return true; };
    };
    // A request as it arrived.
    struct Seen {
        std::uint32_t layer = 0;
        std::size_t rows = 0;
        std::size_t pairs = 0;
        bool probe() const { return rows == 1 && pairs == 1; }
    };

    explicit FakeWorker(Options options);
    ~FakeWorker();
    FakeWorker(const FakeWorker&) = delete;
    FakeWorker& operator=(const FakeWorker&) = delete;

    WorkerEndpoint endpoint() const;
    // What to do with each request from now on.
    void behave(Fault fault);
    void behave(std::function<Fault()> next);
    // From now on every row it answers is wrong in one value.
    void lie() { lies_ = true; }
    // New pieces, announced to all connections.
    void update(std::vector<Piece> pieces);
    void drop_connections();

    std::vector<Seen> seen() const;
    std::uint64_t cancels() const { return cancels_; }
    std::uint64_t connections() const { return connections_; }
    std::uint32_t most_unanswered() const { return most_unanswered_; }
    bool broken_rules() const { return broken_rules_; }

  private:
    void accept(ConnectionPtr connection);
    void on_frame(const std::weak_ptr<Connection>& weak, Frame&& frame);
    void compute(Connection& connection, const ConnectionPtr& keep, const Frame& frame);
    void answer_later(const ConnectionPtr& connection, std::vector<Frame> frames);
    std::vector<Frame> attest(const Connection& connection, std::uint64_t request, const Compute& compute,
                              RowEncoding encoding, ByteSpan rows) const;
    void welcome(Connection& connection);

    const Options options_;
    std::shared_ptr<const Identity> identity_;
    std::shared_ptr<const Identity> other_identity_;
    std::atomic<bool> lies_{false};
    mutable std::mutex mutex_;
    std::function<Fault()> next_fault_ = [] { return Fault::none; };
    std::vector<Piece> pieces_;
    std::uint64_t epoch_ = 1;
    std::vector<std::weak_ptr<Connection>> open_;
    std::vector<Seen> seen_;
    std::atomic<std::uint64_t> cancels_{0};
    std::atomic<std::uint64_t> connections_{0};
    std::uint32_t unanswered_ = 0;
    std::atomic<std::uint32_t> most_unanswered_{0};
    std::atomic<bool> broken_rules_{false};

    boost::asio::io_context context_;
    std::unique_ptr<Listener> listener_;
    std::jthread thread_;
};

// Speaks bytes, without TLS: `after_hello` gets the socket once HELLO was read and may write what it likes; the
// connection ends when it returns.
class RawWorker {
  public:
    explicit RawWorker(std::function<void(int socket)> after_hello);
    ~RawWorker();
    RawWorker(const RawWorker&) = delete;
    RawWorker& operator=(const RawWorker&) = delete;
    WorkerEndpoint endpoint() const;

  private:
    int listening_ = -1;
    std::uint16_t port_ = 0;
    std::jthread thread_;
};
// One frame, header included.
ByteVector frame_bytes(FrameType type, std::uint64_t request, const ByteVector& payload);
bool write_all(int socket, ByteSpan bytes);
// The next frame; none at the end.
std::optional<Frame> read_frame(int socket);

// Short back-offs and patience, as a base for tests.
SwarmConfig test_config(const std::vector<const FakeWorker*>& workers, std::chrono::milliseconds deadline);
std::unique_ptr<Dispatcher> make_dispatcher(SwarmConfig config);
// Polls until `condition`, at most a minute.
bool eventually(const std::function<bool()>& condition);

}  // namespace kvasir::test
