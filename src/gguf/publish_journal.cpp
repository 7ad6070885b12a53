#include "gguf/publish_journal.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace kvasir {
namespace {

constexpr std::string_view kMagic = "KVPUBJ1\n";
constexpr std::size_t kHeaderBytes = kMagic.size() + sizeof(Digest);
constexpr std::size_t kCheckBytes = 8;
constexpr std::size_t kRecordBytes = sizeof(std::uint32_t) + sizeof(Digest) + kCheckBytes;

// The first bytes of a hash that binds slab, digest and model together.
std::array<std::byte, kCheckBytes> check_of(const Digest& fingerprint, ByteSpan slab_and_digest) {
    Sha256 hash;
    hash.update(fingerprint);
    hash.update(slab_and_digest);
    Digest full = hash.finish();
    std::array<std::byte, kCheckBytes> check{};
    std::copy_n(full.begin(), kCheckBytes, check.begin());
    return check;
}

tl::unexpected<Error> fail_errno(const std::filesystem::path& path, std::string_view action) {
    return fail(ErrorKind::io, "{}: cannot {}: {}", path.string(), action, std::strerror(errno));
}

}  // namespace

Result<PublishJournal> PublishJournal::open(const std::filesystem::path& path, const Digest& fingerprint,
                                            const std::function<void(std::uint32_t, const Digest&)>& restore) {
    PublishJournal journal;
    journal.path_ = path;
    journal.fingerprint_ = fingerprint;
    journal.file_ = File(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666));
    if (journal.file_.descriptor() < 0) return fail_errno(path, "create");
    struct stat status {};
    if (::fstat(journal.file_.descriptor(), &status) != 0) return fail_errno(path, "examine");
    if (!S_ISREG(status.st_mode)) return fail(ErrorKind::usage, "{}: is not a regular file", path.string());
    if (::flock(journal.file_.descriptor(), LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK) return fail_errno(path, "lock");
        return fail(ErrorKind::unavailable, "{}: another process is publishing this model right now", path.string());
    }
    if (Status read = journal.read_records(restore); !read) return fail(read.error());
    return journal;
}

Status PublishJournal::read_records(const std::function<void(std::uint32_t, const Digest&)>& restore) {
    Result<std::uint64_t> size = file_.size();
    if (!size) return fail(size.error().within(path_.string()));
    std::array<std::byte, kHeaderBytes> header{};
    if (*size < kHeaderBytes) return start_over();
    if (Status read = file_.read_at(0, header); !read) return fail(read.error().within(path_.string()));
    bool ours = std::ranges::equal(ByteSpan(header).first(kMagic.size()), std::as_bytes(std::span(kMagic))) &&
                std::ranges::equal(ByteSpan(header).subspan(kMagic.size()), fingerprint_);
    if (!ours) return start_over();

    std::uint64_t good = kHeaderBytes;
    std::array<std::byte, kRecordBytes> record{};
    for (; good + kRecordBytes <= *size; good += kRecordBytes) {
        if (Status read = file_.read_at(good, record); !read) return fail(read.error().within(path_.string()));
        ByteSpan content = ByteSpan(record).first(kRecordBytes - kCheckBytes);
        if (!std::ranges::equal(check_of(fingerprint_, content), ByteSpan(record).last(kCheckBytes))) break;
        ByteReader reader(content);
        auto slab = reader.read<std::uint32_t>();
        Digest digest{};
        std::ranges::copy(reader.take(digest.size()), digest.begin());
        restore(slab, digest);
    }
    if (::ftruncate(file_.descriptor(), static_cast<off_t>(good)) != 0) return fail_errno(path_, "shorten");
    if (::lseek(file_.descriptor(), 0, SEEK_END) < 0) return fail_errno(path_, "position in");
    return {};
}

Status PublishJournal::start_over() {
    if (::ftruncate(file_.descriptor(), 0) != 0) return fail_errno(path_, "empty");
    if (::lseek(file_.descriptor(), 0, SEEK_SET) < 0) return fail_errno(path_, "position in");
    ByteWriter writer;
    writer.append(std::as_bytes(std::span(kMagic)));
    writer.append(fingerprint_);
    return write_all(writer.buffer());
}

Status PublishJournal::append(std::uint32_t slab, const Digest& digest) {
    ByteWriter writer;
    writer.write(slab);
    writer.append(digest);
    writer.append(check_of(fingerprint_, writer.buffer()));
    return write_all(writer.buffer());
}

Status PublishJournal::write_all(ByteSpan bytes) {
    while (!bytes.empty()) {
        ssize_t written = ::write(file_.descriptor(), bytes.data(), bytes.size());
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return fail_errno(path_, "write");
        bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
    return {};
}

}  // namespace kvasir
