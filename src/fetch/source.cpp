#include "fetch/source.h"

#include <algorithm>

namespace kvasir::fetch {
namespace {

constexpr double kMuchFaster = 8;
constexpr std::chrono::seconds kLongestPause{60};

bool same_place(const Source& a, const Source& b) {
    return a.base.text() == b.base.text() && a.model == b.model;
}

}  // namespace

http::Url Source::file(const Manifest& manifest, std::size_t number) const {
    if (!model) return http::inside(base, manifest.files[number].name);
    return base.with_target(fmt::format("/v1/models/{}/files/{}", to_hex(*model), number));
}

std::vector<Source> sources_of(const Manifest& manifest, const std::optional<Source>& hub,
                               const std::vector<Source>& more) {
    std::vector<Source> all;
    const auto add = [&all](const Source& source) {
        const auto same = [&source](const Source& known) { return same_place(known, source); };
        if (std::ranges::none_of(all, same)) all.push_back(source);
    };
    if (hub) add(*hub);
    for (const Source& source : more)
        add(source);
    for (const std::string& mirror : manifest.mirrors) {
        Result<http::Url> url = http::parse_url(mirror);
        http::Trust trust;
        // Whoever named a file of authorities meant it for every server that is not pinned.
        if (hub) trust.ca_file = hub->trust.ca_file;
        if (url) add({*url, std::nullopt, trust});
    }
    return all;
}

SourceBook::SourceBook(const std::vector<Source>& sources) {
    for (const Source& source : sources)
        entries_.emplace_back().report.name = source.base.text();
}

std::optional<std::size_t> SourceBook::choose(Clock::time_point now, std::size_t busy) const {
    const auto may_be_asked = [now](const Entry& entry) { return !entry.report.dropped && entry.wait_until <= now; };
    double best = 0;
    for (const Entry& entry : entries_) {
        if (may_be_asked(entry) && entry.active < busy) best = std::max(best, entry.speed);
    }
    std::optional<std::size_t> chosen;
    for (std::size_t i = 0; i < entries_.size(); ++i) {
        const Entry& entry = entries_[i];
        if (!may_be_asked(entry) || (entry.speed > 0 && entry.speed * kMuchFaster < best)) continue;
        if (!chosen ||
            std::pair(entry.active, -entry.speed) < std::pair(entries_[*chosen].active, -entries_[*chosen].speed)) {
            chosen = i;
        }
    }
    return chosen;
}

std::optional<SourceBook::Clock::time_point> SourceBook::next_chance() const {
    std::optional<Clock::time_point> soonest;
    for (const Entry& entry : entries_) {
        if (!entry.report.dropped && (!soonest || entry.wait_until < *soonest)) soonest = entry.wait_until;
    }
    return soonest;
}

void SourceBook::begin(std::size_t source) {
    ++entries_[source].active;
    ++entries_[source].report.requests;
}

void SourceBook::succeeded(std::size_t source, std::uint64_t bytes, Clock::duration time) {
    Entry& entry = entries_[source];
    release(source);
    entry.failures = 0;
    const double seconds = std::max(std::chrono::duration<double>(time).count(), 1e-4);
    const double rate = static_cast<double>(bytes) / seconds;
    entry.speed = entry.speed == 0 ? rate : (entry.speed + rate) / 2;
}

void SourceBook::failed(std::size_t source, const std::string& why, Clock::time_point now,
                        std::optional<std::chrono::seconds> pause) {
    Entry& entry = entries_[source];
    release(source);
    const auto doubled = std::chrono::seconds(1) * (1 << std::min(entry.failures, 6));
    entry.wait_until = now + std::min(std::max(doubled, pause.value_or(doubled)), kLongestPause);
    ++entry.failures;
    entry.report.trouble = why;
}

void SourceBook::drop(std::size_t source, const std::string& why) {
    release(source);
    entries_[source].report.trouble = why;
    entries_[source].report.dropped = true;
}

std::vector<SourceReport> SourceBook::report() const {
    std::vector<SourceReport> reports;
    for (const Entry& entry : entries_)
        reports.push_back(entry.report);
    return reports;
}

std::string SourceBook::troubles() const {
    std::string text;
    for (const Entry& entry : entries_) {
        if (entry.report.trouble.empty()) continue;
        if (!text.empty()) text += "; ";
        text += entry.report.trouble;
    }
    return text;
}

}  // namespace kvasir::fetch
