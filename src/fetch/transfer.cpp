#include "fetch/transfer.h"

#include <algorithm>
#include <charconv>

#include "http/range.h"
#include "http/text.h"

namespace kvasir::fetch {
namespace {

// Written, hashed and noted in steps of this size: what a kill costs is at most one of them for every connection.
constexpr std::size_t kStep = 256 << 10;

Outcome retry(Error error, std::optional<std::chrono::seconds> pause = {}) {
    return {Outcome::Kind::retry, std::move(error), pause};
}

template <class... Args>
Outcome liar(fmt::format_string<Args...> format, Args&&... args) {
    return {Outcome::Kind::liar, {ErrorKind::invalid, fmt::format(format, std::forward<Args>(args)...)}, {}};
}

std::optional<std::chrono::seconds> retry_after(const http::Answer& answer) {
    const std::optional<std::string_view> field = answer.find("Retry-After");
    unsigned seconds = 0;
    if (!field) return std::nullopt;
    const auto [end, error] = std::from_chars(field->data(), field->data() + field->size(), seconds);
    if (error != std::errc{}) return std::nullopt;
    return std::chrono::seconds(std::min(seconds, 3600U));
}

// The answer must be exactly the range that was asked for, of a file as long as it should be.
Outcome check_answer(const http::Answer& answer, const http::ByteRange& range, std::uint64_t file_size) {
    const unsigned status = answer.status;
    if (status == 408 || status == 425 || status == 429 || status >= 500) {
        return retry({ErrorKind::unavailable, fmt::format("answered {} {}", status, http::reason(status))},
                     retry_after(answer));
    }
    if (status == 200) return liar("ignores byte ranges: it answered 200 with the whole");
    if (status == 416) return liar("has a shorter file: it answered 416 to bytes within it");
    if (status != 206) return liar("answered {} {}", status, http::reason(status));
    if (const auto coding = answer.find("Content-Encoding"); coding && *coding != "identity") {
        return liar("sends encoded bytes ({})", http::printable(*coding, 40));
    }
    Result<http::ContentRange> sent = http::parse_content_range(answer.find("Content-Range").value_or(""));
    if (!sent) return liar("{}", sent.error().message);
    if (sent->range != range) {
        return liar("sends bytes {}+{} where {}+{} were asked for", sent->range.first, sent->range.length, range.first,
                    range.length);
    }
    if (sent->size && *sent->size != file_size) {
        return liar("has another file, of {} bytes instead of {}", *sent->size, file_size);
    }
    if (answer.length && *answer.length != range.length) {
        return liar("sends {} bytes where {} were asked for", *answer.length, range.length);
    }
    return {};
}

// Takes the stretch's bytes as they come.
class Sink {
  public:
    Sink(const FetchPlan& plan, const Stretch& stretch, std::uint64_t had, const PartFile& part, TransferEvents& events)
        : plan_(plan), stretch_(stretch), part_(part), events_(events), slab_(stretch.first), arrived_(had) {}

    // What is in the file of the first slab is part of its hash.
    Status begin() {
        mixed_ = arrived_ > 0 && !events_.same_origin(slab_);
        ByteVector buffer(std::min<std::uint64_t>(kStep, arrived_));
        for (std::uint64_t done = 0; done < arrived_;) {
            std::span<std::byte> chunk = std::span(buffer).first(std::min<std::uint64_t>(kStep, arrived_ - done));
            if (Status read = part_.file().read_at(current().target + done, chunk); !read) return read;
            hash_.update(chunk);
            done += chunk.size();
        }
        return {};
    }

    bool finished() const { return slab_ == stretch_.first + stretch_.count; }
    // Before a slab's end no step crosses it.
    std::size_t next_step() const { return std::min<std::uint64_t>(kStep, current().bytes - arrived_); }

    // At most next_step() bytes.
    Outcome take(ByteSpan bytes) {
        if (bytes.empty()) return {};
        if (Status written = part_.write(current().target + arrived_, bytes); !written) return fatal(written);
        hash_.update(bytes);
        arrived_ += bytes.size();
        if (arrived_ < current().bytes) return noted(events_.arrived(slab_, arrived_));
        if (hash_.finish() == current().digest) {
            if (Status noted = events_.arrived(slab_, arrived_); !noted) return fatal(noted);
            next();
            return {};
        }
        const std::string what = plan_.describe(slab_);
        if (Status forgotten = events_.arrived(slab_, 0); !forgotten) return fatal(forgotten);
        if (!mixed_) return liar("sent wrong bytes for {}", what);
        return {Outcome::Kind::leftover, {ErrorKind::invalid, fmt::format("{}: its parts do not fit", what)}, {}};
    }

  private:
    static Outcome fatal(const Status& status) { return {Outcome::Kind::fatal, status.error(), {}}; }
    static Outcome noted(const Status& status) { return status ? Outcome{} : fatal(status); }
    const WantedSlab& current() const { return plan_.slabs[slab_]; }
    void next() {
        ++slab_;
        arrived_ = 0;
        mixed_ = false;
    }

    const FetchPlan& plan_;
    const Stretch& stretch_;
    const PartFile& part_;
    TransferEvents& events_;
    std::size_t slab_;
    std::uint64_t arrived_;
    bool mixed_ = false;  // parts of the current slab came from elsewhere
    Sha256 hash_;
};

// Fills the buffer as far as the source allows; less than all of it only with an error.
Status fill(http::Client& client, std::span<std::byte> buffer, std::size_t& filled, TransferEvents& events) {
    for (filled = 0; filled < buffer.size();) {
        Result<std::size_t> count = client.read(buffer.subspan(filled));
        if (!count) return fail(count.error());
        if (*count == 0) return fail(ErrorKind::unavailable, "the answer ended early");
        filled += *count;
        events.moved(*count);
    }
    return {};
}

}  // namespace

Outcome transfer(http::Client& client, const http::Url& url, const FetchPlan& plan, const Stretch& stretch,
                 std::uint64_t had, const PartFile& part, TransferEvents& events) {
    const http::ByteRange range{stretch.offset, stretch.bytes};
    Sink sink(plan, stretch, had, part, events);
    if (Status begun = sink.begin(); !begun) return {Outcome::Kind::fatal, begun.error(), {}};
    const http::Call call{"GET", url, {{"Range", http::range_field(range)}, {"Accept-Encoding", "identity"}}, {}};
    Result<http::Answer> answer = client.call(call);
    if (!answer) {
        const bool hopeless = answer.error().kind != ErrorKind::unavailable;
        return {hopeless ? Outcome::Kind::liar : Outcome::Kind::retry, answer.error(), {}};
    }
    Outcome outcome = check_answer(*answer, range, plan.files[stretch.file].size);
    ByteVector buffer(kStep);
    while (outcome.kind == Outcome::Kind::complete && !sink.finished()) {
        std::size_t filled = 0;
        const Status read = fill(client, std::span(buffer).first(sink.next_step()), filled, events);
        outcome = sink.take(ByteSpan(buffer).first(filled));
        if (!read && outcome.kind == Outcome::Kind::complete) outcome = retry(read.error());
    }
    // Nobody wants the rest of such an answer.
    if (outcome.kind != Outcome::Kind::complete) client.close();
    return outcome;
}

}  // namespace kvasir::fetch
