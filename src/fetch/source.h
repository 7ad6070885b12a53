// Where bytes can be had from, and what has become of each of these places during a download.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gguf/manifest.h"
#include "http/tls.h"
#include "http/url.h"

namespace kvasir::fetch {

// A hub's files, or a directory on any web server that supports ranges.
struct Source {
    http::Url base;               // a mirror's directory; a hub's root
    std::optional<Digest> model;  // a hub: files are under /v1/models/{model}/files/{n}; none: under their names
    http::Trust trust = {};

    http::Url file(const Manifest& manifest, std::size_t number) const;
};

// `hub` first if there is one, then the manifest's mirrors, then `more`; each once. A mirror of the manifest that is no
// URL is left out: it is a stranger's text.
std::vector<Source> sources_of(const Manifest& manifest, const std::optional<Source>& hub,
                               const std::vector<Source>& more);

// What one source has done for a download.
struct SourceReport {
    std::string name;  // its URL
    std::uint64_t bytes = 0;
    std::uint64_t requests = 0;
    std::string trouble;   // the last thing that went wrong, with the URL; empty: nothing
    bool dropped = false;  // it lied or does not have the file: it is not asked again
};

// Which source to ask next. Not thread-safe.
class SourceBook {
  public:
    using Clock = std::chrono::steady_clock;

    explicit SourceBook(const std::vector<Source>& sources);

    // The least busy of those that may be asked at `now`, the fastest of several; one that is eight times slower than
    // the fastest only when that one has `busy` requests. None: nobody may be asked right now.
    std::optional<std::size_t> choose(Clock::time_point now, std::size_t busy) const;
    // When somebody may be asked again; none: never.
    std::optional<Clock::time_point> next_chance() const;

    void begin(std::size_t source);
    void succeeded(std::size_t source, std::uint64_t bytes, Clock::duration time);
    // It has done nothing wrong, and nothing that could be measured.
    void release(std::size_t source) { --entries_[source].active; }
    // May be better later: it is left alone for a second, doubling up to a minute, or for as long as it asks to.
    void failed(std::size_t source, const std::string& why, Clock::time_point now,
                std::optional<std::chrono::seconds> pause = {});
    // Never to be asked again.
    void drop(std::size_t source, const std::string& why);

    // Bytes per second; 0: not known yet.
    double speed(std::size_t source) const { return entries_[source].speed; }
    void count(std::size_t source, std::uint64_t bytes) { entries_[source].report.bytes += bytes; }
    std::vector<SourceReport> report() const;
    // "http://a/: sent wrong bytes for …; http://b/: no answer in time"
    std::string troubles() const;

  private:
    struct Entry {
        SourceReport report;
        std::size_t active = 0;
        int failures = 0;  // since the last success
        double speed = 0;
        Clock::time_point wait_until{};
    };
    std::vector<Entry> entries_;
};

}  // namespace kvasir::fetch
