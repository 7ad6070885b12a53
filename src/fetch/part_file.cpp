#include "fetch/part_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/units.h"
#include "gguf/slice.h"

namespace kvasir::fetch {
namespace {

tl::unexpected<Error> fail_errno(const std::filesystem::path& path, std::string_view action) {
    const bool full = errno == ENOSPC || errno == EDQUOT || errno == EFBIG;
    return fail(ErrorKind::io, "{}: cannot {}: {}{}", path.string(), action, std::strerror(errno),
                full ? " (free some space; what is there stays, and the same command goes on from it)" : "");
}

// Claims the blocks now: a disk that is too full says so before anything has been downloaded.
Status claim(const File& file, std::uint64_t size, const std::filesystem::path& path) {
    struct stat status {};
    if (::fstat(file.descriptor(), &status) != 0) return fail_errno(path, "examine");
    const std::uint64_t held = static_cast<std::uint64_t>(status.st_blocks) * 512;
    std::error_code error;
    const std::filesystem::space_info space =
        std::filesystem::space(path.has_parent_path() ? path.parent_path() : ".", error);
    const std::uint64_t missing = size - std::min(size, held);
    if (!error && space.available < missing) {
        return fail(ErrorKind::io, "{}: {} are needed, {} are free on that disk", path.string(), human_bytes(missing),
                    human_bytes(space.available));
    }
    if (::ftruncate(file.descriptor(), static_cast<off_t>(size)) != 0) return fail_errno(path, "enlarge");
    const bool claimed = ::fallocate(file.descriptor(), 0, 0, static_cast<off_t>(size)) == 0;
    if (claimed || errno == EOPNOTSUPP || errno == ENOSYS) return {};
    return fail_errno(path, "claim space");
}

Status sync_directory(const std::filesystem::path& file) {
    const std::filesystem::path directory = file.has_parent_path() ? file.parent_path() : ".";
    const File opened(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (opened.descriptor() < 0 || ::fsync(opened.descriptor()) != 0) return fail_errno(directory, "sync");
    return {};
}

}  // namespace

std::filesystem::path part_path(const std::filesystem::path& out) {
    return out.string() + ".part";
}
std::filesystem::path journal_path(const std::filesystem::path& out) {
    return out.string() + ".part.journal";
}

Result<PartFile> PartFile::open(const std::filesystem::path& out, const FetchPlan& plan, bool adopt) {
    if (Status there = check_directory_of(out); !there) return fail(there.error());
    std::error_code ignored;
    const auto status = std::filesystem::status(out, ignored);
    if (!out.has_filename() || (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))) {
        return fail(ErrorKind::usage, "{}: is not a regular file; name a file to write", out.string());
    }
    PartFile part;
    part.out_ = out;
    part.path_ = part_path(out);
    Result<Journal> journal = Journal::open(journal_path(out), sha256(plan.header));
    if (!journal) return fail(journal.error());
    part.journal_ = std::move(*journal);
    const bool fresh = !std::filesystem::exists(part.path_, ignored);
    if (fresh && adopt) std::filesystem::rename(out, part.path_, ignored);
    if (Status ready = part.prepare(plan, fresh); !ready) {
        // Nothing is worth keeping that was never begun.
        if (fresh) part.discard();
        return fail(ready.error());
    }
    return part;
}

Status PartFile::prepare(const FetchPlan& plan, bool fresh) {
    file_ = File(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666));
    if (file_.descriptor() < 0) return fail_errno(path_, "create");
    struct stat status {};
    if (::fstat(file_.descriptor(), &status) != 0) return fail_errno(path_, "examine");
    if (!S_ISREG(status.st_mode)) return fail(ErrorKind::usage, "{}: is not a regular file", path_.string());
    if (fresh && !journal_.arrived().empty()) {
        if (Status emptied = journal_.start_over(); !emptied) return emptied;
    }
    if (Status claimed = claim(file_, plan.size, path_); !claimed) return claimed;
    if (Status written = write(0, plan.header); !written) return written;
    // Zeros between one tensor's end and the next one's beginning, whatever an older file had there.
    for (const SlicePiece& piece : plan.contents.pieces) {
        for (const ExpertTensor& tensor : piece.layer.tensors) {
            const std::uint64_t end = plan.header.size() + tensor.info.offset + tensor.info.bytes;
            const ByteVector zeros((kSliceAlignment - end % kSliceAlignment) % kSliceAlignment);
            if (Status written = write(end, zeros); !written) return written;
        }
    }
    return {};
}

Status PartFile::write(std::uint64_t offset, ByteSpan bytes) const {
    while (!bytes.empty()) {
        const ssize_t written = ::pwrite(file_.descriptor(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return fail_errno(path_, "write");
        offset += static_cast<std::uint64_t>(written);
        bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
    return {};
}

void PartFile::discard() {
    ::unlink(path_.c_str());
    journal_.remove();
}

Status PartFile::commit() {
    if (::fsync(file_.descriptor()) != 0) return fail_errno(path_, "sync");
    if (Result<Slice> slice = open_slice(path_); !slice) return fail(slice.error());
    if (::rename(path_.c_str(), out_.c_str()) != 0) return fail_errno(out_, "rename to");
    if (Status synced = sync_directory(out_); !synced) return synced;
    journal_.remove();
    return {};
}

}  // namespace kvasir::fetch
