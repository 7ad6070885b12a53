// The meeting point of one call: the caller waits here, io threads put answers here. It outlives the call for as long
// as a late answer may come; the caller's buffer is touched only while the call is open.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "backbone/worker_link.h"

namespace kvasir {

// The remote pairs of a call are dealt into shares. A share may be asked for several times, each with a ticket of its
// own; the first answer wins. Thread-safe.
class CallBoard : public ReplyHandler {
  public:
    // out: [pairs][hidden] of the whole call, untouched once close() has returned. A share lists indices into it.
    CallBoard(std::span<float> out, std::uint32_t hidden, std::vector<std::vector<std::uint32_t>> shares);

    std::size_t share_count() const { return pairs_.size(); }
    std::span<const std::uint32_t> pairs(std::uint32_t share) const { return pairs_[share]; }

    // A ticket for a share, to be taken before it is asked for.
    std::uint32_t issue_ticket(std::uint32_t share);
    // Asked for in vain.
    void void_ticket(std::uint32_t ticket) { failed(ticket); }

    enum class Event { all_done, nobody_asked, timeout };
    // Waits until all shares are done, or for one of them nobody is asked, or `until`. Sleeps only after `awake_until`:
    // to wake a sleeping thread takes about as long as a near worker's answer.
    Event wait(SteadyTime until, SteadyTime awake_until);
    bool done(std::uint32_t share) const;
    // Not done, and nobody is asked for it.
    bool orphaned(std::uint32_t share) const;
    // Rows computed by the caller, [pairs of the share][hidden]. False if an answer came first: they were not used.
    bool put(std::uint32_t share, std::span<const float> rows);
    // The ticket whose answer was used; none where the caller's rows were.
    std::optional<std::uint32_t> winner(std::uint32_t share) const;
    // The longest computing time among the answers used, in seconds.
    double longest_compute() const;
    // From here on answers are dropped. Waits for one that is being copied.
    void close();

    void answered(std::uint32_t ticket, std::span<const float> rows, double compute_seconds) override;
    void failed(std::uint32_t ticket) override;

  private:
    enum class State { open, copying, done };
    struct Share {
        State state = State::open;
        std::uint32_t valid_tickets = 0;
        std::optional<std::uint32_t> winner;
    };
    struct Ticket {
        std::uint32_t share = 0;
        bool valid = true;
    };
    bool fill(std::uint32_t share, std::span<const float> rows, std::optional<std::uint32_t> ticket);
    std::optional<Event> event() const;

    void announce();

    const std::span<float> out_;
    const std::uint32_t hidden_;
    const std::vector<std::vector<std::uint32_t>> pairs_;

    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::atomic<std::uint32_t> announcements_{0};  // of events
    std::vector<Share> shares_;
    std::vector<Ticket> tickets_;
    double longest_compute_ = 0;
    bool closed_ = false;
};

// rows[i] → out[pairs[i]], rows of `hidden` values.
void scatter_rows(std::span<const float> rows, std::span<const std::uint32_t> pairs, std::uint32_t hidden,
                  std::span<float> out);

}  // namespace kvasir
