#include "worker/log_throttle.h"

#include <utility>

namespace kvasir {

namespace {
constexpr std::size_t kMostSources = 1024;
}

std::optional<std::uint64_t> LogThrottle::admit(const std::string& source, Clock::time_point now) {
    std::scoped_lock lock(mutex_);
    auto found = entries_.find(source);
    if (found == entries_.end()) {
        if (entries_.size() >= kMostSources) {
            std::erase_if(entries_, [&](const auto& entry) { return now - entry.second.last >= interval_; });
        }
        if (entries_.size() >= kMostSources) return std::nullopt;  // so many at once are one attack
        entries_.emplace(source, Entry{now, 0});
        return 0;
    }
    Entry& entry = found->second;
    if (now - entry.last < interval_) {
        ++entry.kept_back;
        return std::nullopt;
    }
    entry.last = now;
    return std::exchange(entry.kept_back, 0);
}

}  // namespace kvasir
