#include "backbone/call_board.h"

#include <algorithm>
#include <thread>
#include <utility>

namespace kvasir {
namespace {

// Lets the core's other hyper-thread have its resources.
void spin_pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb");
#endif
}

}  // namespace

void scatter_rows(std::span<const float> rows, std::span<const std::uint32_t> pairs, std::uint32_t hidden,
                  std::span<float> out) {
    for (std::size_t i = 0; i < pairs.size(); ++i) {
        std::span<const float> row = rows.subspan(i * hidden, hidden);
        std::copy(row.begin(), row.end(), out.begin() + static_cast<std::ptrdiff_t>(std::size_t{pairs[i]} * hidden));
    }
}

CallBoard::CallBoard(std::span<float> out, std::uint32_t hidden, std::vector<std::vector<std::uint32_t>> shares)
    : out_(out), hidden_(hidden), pairs_(std::move(shares)), shares_(pairs_.size()) {}

std::uint32_t CallBoard::issue_ticket(std::uint32_t share) {
    std::scoped_lock lock(mutex_);
    tickets_.push_back({share, true});
    ++shares_[share].valid_tickets;
    return static_cast<std::uint32_t>(tickets_.size() - 1);
}

void CallBoard::answered(std::uint32_t ticket, std::span<const float> rows, double compute_seconds) {
    std::uint32_t share = 0;
    {
        std::scoped_lock lock(mutex_);
        share = tickets_[ticket].share;
    }
    if (!fill(share, rows, ticket)) return;
    std::scoped_lock lock(mutex_);
    longest_compute_ = std::max(longest_compute_, compute_seconds);
    shares_[share].state = State::done;
    if (closed_ || event()) announce();
}

bool CallBoard::put(std::uint32_t share, std::span<const float> rows) {
    if (!fill(share, rows, std::nullopt)) return false;
    std::scoped_lock lock(mutex_);
    shares_[share].state = State::done;
    return true;
}

// Copies the rows, without the lock; the share stays in `copying` until its caller sets it to done.
bool CallBoard::fill(std::uint32_t share, std::span<const float> rows, std::optional<std::uint32_t> ticket) {
    {
        std::scoped_lock lock(mutex_);
        if (closed_ || shares_[share].state != State::open) return false;
        shares_[share].state = State::copying;
        shares_[share].winner = ticket;
    }
    scatter_rows(rows, pairs_[share], hidden_, out_);
    return true;
}

void CallBoard::failed(std::uint32_t ticket) {
    std::scoped_lock lock(mutex_);
    if (!std::exchange(tickets_[ticket].valid, false)) return;
    --shares_[tickets_[ticket].share].valid_tickets;
    if (event()) announce();
}

std::optional<CallBoard::Event> CallBoard::event() const {
    bool all_done = true;
    for (const Share& share : shares_) {
        if (share.state == State::open && share.valid_tickets == 0) return Event::nobody_asked;
        all_done = all_done && share.state == State::done;
    }
    return all_done ? std::optional(Event::all_done) : std::nullopt;
}

void CallBoard::announce() {
    announcements_.fetch_add(1, std::memory_order_relaxed);
    changed_.notify_all();
}

CallBoard::Event CallBoard::wait(SteadyTime until, SteadyTime awake_until) {
    std::unique_lock lock(mutex_);
    const std::uint32_t known = announcements_.load(std::memory_order_relaxed);
    const std::optional<Event> at_once = event();
    if (at_once) return *at_once;
    lock.unlock();
    awake_until = std::min(awake_until, until);
    while (announcements_.load(std::memory_order_relaxed) == known && std::chrono::steady_clock::now() < awake_until)
        spin_pause();
    lock.lock();
    changed_.wait_until(lock, until, [&] { return event().has_value(); });
    return event().value_or(Event::timeout);
}

bool CallBoard::done(std::uint32_t share) const {
    std::scoped_lock lock(mutex_);
    return shares_[share].state != State::open;
}

bool CallBoard::orphaned(std::uint32_t share) const {
    std::scoped_lock lock(mutex_);
    return shares_[share].state == State::open && shares_[share].valid_tickets == 0;
}

std::optional<std::uint32_t> CallBoard::winner(std::uint32_t share) const {
    std::scoped_lock lock(mutex_);
    return shares_[share].winner;
}

double CallBoard::longest_compute() const {
    std::scoped_lock lock(mutex_);
    return longest_compute_;
}

void CallBoard::close() {
    std::unique_lock lock(mutex_);
    closed_ = true;
    changed_.wait(lock, [&] {
        return std::none_of(shares_.begin(), shares_.end(),
                            [](const Share& share) { return share.state == State::copying; });
    });
}

}  // namespace kvasir
