#include "fetch/journal.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace kvasir::fetch {
namespace {

constexpr std::string_view kMagic = "KVFETJ1\n";
constexpr std::size_t kCheckBytes = 8;
static_assert(kJournalHeaderBytes == kMagic.size() + sizeof(Digest));
static_assert(kJournalRecordBytes == 2 * sizeof(std::uint64_t) + kCheckBytes);

Digest check_of(const Digest& fingerprint, ByteSpan content) {
    Sha256 hash;
    hash.update(fingerprint);
    hash.update(content);
    return hash.finish();
}

tl::unexpected<Error> fail_errno(const std::filesystem::path& path, std::string_view action) {
    return fail(ErrorKind::io, "{}: cannot {}: {}", path.string(), action, std::strerror(errno));
}

// The file of that name, locked. Who held it before may have deleted it when done: then the name is made anew.
Result<File> open_locked(const std::filesystem::path& path) {
    constexpr int kAttempts = 100;
    for (int i = 0; i < kAttempts; ++i) {
        File file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666));
        struct stat status {};
        if (file.descriptor() < 0) return fail_errno(path, "create");
        if (::fstat(file.descriptor(), &status) != 0) return fail_errno(path, "examine");
        if (!S_ISREG(status.st_mode)) return fail(ErrorKind::usage, "{}: is not a regular file", path.string());
        if (::flock(file.descriptor(), LOCK_EX | LOCK_NB) != 0) {
            if (errno != EWOULDBLOCK) return fail_errno(path, "lock");
            return fail(ErrorKind::unavailable, "{}: another process is downloading this right now", path.string());
        }
        if (::fstat(file.descriptor(), &status) != 0) return fail_errno(path, "examine");
        if (status.st_nlink > 0) return file;
    }
    return fail(ErrorKind::unavailable, "{}: other processes keep making and deleting it", path.string());
}

}  // namespace

ByteVector journal_header(const Digest& fingerprint) {
    ByteWriter writer;
    writer.append(std::as_bytes(std::span(kMagic)));
    writer.append(fingerprint);
    return std::move(writer.buffer());
}

ByteVector journal_record(const Digest& fingerprint, std::uint64_t target, std::uint64_t bytes) {
    ByteWriter writer;
    writer.write(target);
    writer.write(bytes);
    const Digest check = check_of(fingerprint, writer.buffer());
    writer.append(ByteSpan(check).first(kCheckBytes));
    return std::move(writer.buffer());
}

JournalContents parse_journal(ByteSpan bytes, const Digest& fingerprint) {
    JournalContents contents;
    const ByteVector header = journal_header(fingerprint);
    if (bytes.size() < header.size() || !std::ranges::equal(bytes.first(header.size()), header)) return contents;
    contents.good_bytes = header.size();
    bytes = bytes.subspan(header.size());
    for (; bytes.size() >= kJournalRecordBytes; bytes = bytes.subspan(kJournalRecordBytes)) {
        const ByteSpan record = bytes.first(kJournalRecordBytes);
        const ByteSpan content = record.first(kJournalRecordBytes - kCheckBytes);
        const Digest check = check_of(fingerprint, content);
        if (!std::ranges::equal(record.last(kCheckBytes), ByteSpan(check).first(kCheckBytes))) break;
        ByteReader reader(content);
        const auto target = reader.read<std::uint64_t>();
        contents.arrived[target] = reader.read<std::uint64_t>();
        contents.good_bytes += kJournalRecordBytes;
    }
    return contents;
}

Result<Journal> Journal::open(const std::filesystem::path& path, const Digest& fingerprint) {
    Journal journal;
    journal.path_ = path;
    journal.fingerprint_ = fingerprint;
    Result<File> file = open_locked(path);
    if (!file) return fail(file.error());
    journal.file_ = std::move(*file);
    Result<std::uint64_t> size = journal.file_.size();
    if (!size) return fail(size.error().within(path.string()));
    ByteVector bytes(std::min(*size, kMaxJournalBytes));
    if (Status read = journal.file_.read_at(0, bytes); !read) return fail(read.error().within(path.string()));
    JournalContents contents = parse_journal(bytes, fingerprint);
    if (contents.good_bytes == 0) {
        if (Status emptied = journal.start_over(); !emptied) return fail(emptied.error());
        return journal;
    }
    if (::ftruncate(journal.file_.descriptor(), static_cast<off_t>(contents.good_bytes)) != 0 ||
        ::lseek(journal.file_.descriptor(), 0, SEEK_END) < 0) {
        return fail_errno(path, "shorten");
    }
    journal.arrived_ = std::move(contents.arrived);
    return journal;
}

Status Journal::start_over() {
    arrived_.clear();
    if (::ftruncate(file_.descriptor(), 0) != 0 || ::lseek(file_.descriptor(), 0, SEEK_SET) < 0) {
        return fail_errno(path_, "empty");
    }
    return write_all(journal_header(fingerprint_));
}

Status Journal::append(std::uint64_t target, std::uint64_t bytes) {
    return write_all(journal_record(fingerprint_, target, bytes));
}

void Journal::remove() {
    ::unlink(path_.c_str());
}

Status Journal::write_all(ByteSpan bytes) {
    while (!bytes.empty()) {
        const ssize_t written = ::write(file_.descriptor(), bytes.data(), bytes.size());
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return fail_errno(path_, "write");
        bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
    return {};
}

}  // namespace kvasir::fetch
