#include "base/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/units.h"

namespace kvasir {
namespace {

using std::chrono::steady_clock;
constexpr auto kSilence = std::chrono::milliseconds(500);
constexpr auto kRedraw = std::chrono::milliseconds(100);
constexpr auto kPlainLine = std::chrono::seconds(5);

}  // namespace

Progress::Progress(std::string title, std::uint64_t total, ProgressUnit unit, bool quiet)
    : title_(std::move(title)),
      total_(total),
      unit_(unit),
      quiet_(quiet),
      terminal_(::isatty(STDERR_FILENO) == 1),
      start_(steady_clock::now()),
      last_drawn_(start_) {}

Progress::~Progress() {
    if (terminal_ && drawn_ && !finished_) std::fputc('\n', stderr);
}

void Progress::add(std::uint64_t amount) {
    done_ += amount;
    if (total_ != 0) done_ = std::min(done_, total_);
    if (quiet_ || finished_) return;
    auto now = steady_clock::now();
    if (now - start_ < kSilence || now - last_drawn_ < (terminal_ ? steady_clock::duration(kRedraw) : kPlainLine))
        return;
    last_drawn_ = now;
    draw(false);
}

void Progress::finish() {
    if (!quiet_ && !finished_ && drawn_) draw(true);
    finished_ = true;
}

void Progress::draw(bool last) {
    auto text = [this](std::uint64_t amount) {
        return unit_ == ProgressUnit::bytes ? human_bytes(amount) : human_count(amount);
    };
    double seconds = std::chrono::duration<double>(steady_clock::now() - start_).count();
    double rate = static_cast<double>(done_) / seconds;
    std::string line = fmt::format("{}: {}", title_, text(done_));
    if (total_ != 0) {
        double share = static_cast<double>(done_) / static_cast<double>(total_);
        line += fmt::format(" of {} ({:.0f} %)", text(total_), share * 100);
    }
    line += fmt::format(", {}/s", text(static_cast<std::uint64_t>(rate)));
    if (last)
        line += fmt::format(", {}", human_seconds(seconds));
    else if (total_ != 0 && done_ > 0) {
        line += fmt::format(", {} left", human_seconds(static_cast<double>(total_ - done_) / rate));
    }
    // "\x1b[K" clears what a longer line before left behind.
    fmt::print(stderr, "{}{}{}", terminal_ ? "\r" : "", line, terminal_ ? (last ? "\x1b[K\n" : "\x1b[K") : "\n");
    std::fflush(stderr);
    drawn_ = true;
}

}  // namespace kvasir
