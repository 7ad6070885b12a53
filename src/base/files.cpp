#include "base/files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

namespace kvasir {
namespace {

tl::unexpected<Error> fail_errno(const std::filesystem::path& path, std::string_view action) {
    int code = errno;
    std::string_view hint = code == ENOSPC ? " (free some space on that disk)" : "";
    return fail(ErrorKind::io, "{}: cannot {}: {}{}", path.string(), action, std::strerror(code), hint);
}

Status write_all(int descriptor, ByteSpan bytes, const std::filesystem::path& path) {
    while (!bytes.empty()) {
        ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return fail_errno(path, "write");
        bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
    return {};
}

std::filesystem::path directory_of(const std::filesystem::path& file) {
    return file.has_parent_path() ? file.parent_path() : ".";
}

// A rename is durable only once the directory that holds the name is synced.
Status sync_directory(const std::filesystem::path& file) {
    std::filesystem::path directory = directory_of(file);
    File opened(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (opened.descriptor() < 0 || ::fsync(opened.descriptor()) != 0) return fail_errno(directory, "sync");
    return {};
}

}  // namespace

File::~File() {
    if (descriptor_ >= 0) ::close(descriptor_);
}
File::File(File&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
File& File::operator=(File&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
}

Result<File> File::open(const std::filesystem::path& path) {
    // O_NONBLOCK: a named pipe is refused below instead of waiting for its writer.
    File file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (file.descriptor() < 0) return fail_errno(path, "open");
    struct stat status {};
    if (::fstat(file.descriptor(), &status) != 0) return fail_errno(path, "examine");
    if (!S_ISREG(status.st_mode)) {
        return fail(ErrorKind::usage, "{}: is {}, not a file", path.string(),
                    S_ISDIR(status.st_mode) ? "a directory" : "a device or pipe");
    }
    return file;
}

Result<std::uint64_t> File::size() const {
    struct stat status {};
    if (::fstat(descriptor_, &status) != 0) return fail(ErrorKind::io, "cannot examine a file: {}", strerror(errno));
    return static_cast<std::uint64_t>(status.st_size);
}

Status File::read_at(std::uint64_t offset, std::span<std::byte> out) const {
    while (!out.empty()) {
        ssize_t got = ::pread(descriptor_, out.data(), out.size(), static_cast<off_t>(offset));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return fail(ErrorKind::io, "cannot read at byte {}: {}", offset, std::strerror(errno));
        if (got == 0)
            return fail(ErrorKind::invalid, "the file ends at byte {}, {} more are needed", offset, out.size());
        offset += static_cast<std::uint64_t>(got);
        out = out.subspan(static_cast<std::size_t>(got));
    }
    return {};
}

MappedFile::~MappedFile() {
    if (address_ != nullptr) ::munmap(address_, size_);
}
MappedFile::MappedFile(MappedFile&& other) noexcept
    : address_(std::exchange(other.address_, nullptr)), size_(std::exchange(other.size_, 0)) {}
MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
    std::swap(address_, other.address_);
    std::swap(size_, other.size_);
    return *this;
}

Result<MappedFile> MappedFile::open(const std::filesystem::path& path) {
    Result<File> file = File::open(path);
    if (!file) return fail(file.error());
    Result<std::uint64_t> size = file->size();
    if (!size) return fail(size.error().within(path.string()));
    MappedFile mapped;
    if (*size == 0) return mapped;
    void* address = ::mmap(nullptr, *size, PROT_READ, MAP_SHARED, file->descriptor(), 0);
    if (address == MAP_FAILED) return fail_errno(path, "map");
    mapped.address_ = address;
    mapped.size_ = *size;
    return mapped;
}

Result<AtomicFile> AtomicFile::create(const std::filesystem::path& path) {
    std::error_code ignored;
    std::filesystem::file_status status = std::filesystem::status(path, ignored);
    if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
        return fail(ErrorKind::usage, "{}: is not a regular file; name a file to write", path.string());
    }
    AtomicFile file;
    file.path_ = path;
    // The process and the time make the name unique; O_EXCL makes sure of it.
    auto now = std::chrono::steady_clock::now().time_since_epoch().count();
    file.temporary_ = fmt::format("{}.{}-{}.part", path.string(), ::getpid(), now);
    // A file without a name goes with its process, whatever ends it; not every file system has such.
    file.file_ = File(::open(directory_of(path).c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0666));
    if (file.descriptor() >= 0) return file;
    file.file_ = File(::open(file.temporary_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (file.descriptor() < 0) return fail_errno(path, "create");
    file.named_ = true;
    return file;
}

AtomicFile::~AtomicFile() {
    if (named_) ::unlink(temporary_.c_str());
}
AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : file_(std::move(other.file_)),
      path_(std::move(other.path_)),
      temporary_(std::move(other.temporary_)),
      named_(std::exchange(other.named_, false)),
      size_(other.size_) {}

Status AtomicFile::append(ByteSpan bytes) {
    Status written = write_all(descriptor(), bytes, path_);
    if (written) size_ += bytes.size();
    return written;
}

Status AtomicFile::append_from(const File& source, std::uint64_t offset, std::uint64_t length) {
    auto position = static_cast<off64_t>(offset);
    while (length > 0) {
        std::size_t wanted = std::min<std::uint64_t>(length, std::uint64_t{1} << 30);
        ssize_t copied = ::copy_file_range(source.descriptor(), &position, descriptor(), nullptr, wanted, 0);
        if (copied < 0 && errno == EINTR) continue;
        if (copied < 0 && errno != EXDEV && errno != EINVAL && errno != ENOSYS && errno != EOPNOTSUPP) {
            return fail_errno(path_, "write");
        }
        // Where the kernel cannot copy between these files (or says so by copying nothing), read and write do.
        if (copied <= 0) {
            std::array<std::byte, 1 << 16> buffer;
            std::span<std::byte> chunk = std::span(buffer).first(std::min<std::uint64_t>(length, buffer.size()));
            if (Status read = source.read_at(static_cast<std::uint64_t>(position), chunk); !read) return read;
            if (Status written = write_all(descriptor(), chunk, path_); !written) return written;
            copied = static_cast<ssize_t>(chunk.size());
            position += copied;
        }
        length -= static_cast<std::uint64_t>(copied);
        size_ += static_cast<std::uint64_t>(copied);
    }
    return {};
}

Status AtomicFile::pad_to(std::uint64_t alignment) {
    ByteVector zeros((alignment - size_ % alignment) % alignment);
    return append(zeros);
}

std::filesystem::path AtomicFile::contents_path() const {
    return fmt::format("/proc/self/fd/{}", descriptor());
}

bool AtomicFile::link_as(const std::filesystem::path& name) const {
    return ::linkat(AT_FDCWD, contents_path().c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0;
}

Status AtomicFile::commit() {
    if (::fsync(descriptor()) != 0) return fail_errno(path_, "sync");
    // A rename replaces, a link does not: so a name first, for a moment.
    if (!named_ && !link_as(temporary_)) return fail_errno(path_, "create");
    named_ = true;
    if (::rename(temporary_.c_str(), path_.c_str()) != 0) return fail_errno(path_, "rename to");
    named_ = false;
    return sync_directory(path_);
}

Result<bool> AtomicFile::commit_new() {
    if (::fsync(descriptor()) != 0) return fail_errno(path_, "sync");
    if (!link_as(path_)) {
        if (errno == EEXIST) return false;
        return fail_errno(path_, "create");
    }
    if (Status synced = sync_directory(path_); !synced) return fail(synced.error());
    return true;
}

Status check_directory_of(const std::filesystem::path& path) {
    std::error_code ignored;
    if (std::filesystem::is_directory(directory_of(path), ignored)) return {};
    return fail(ErrorKind::usage, "{}: the directory {} does not exist", path.string(), directory_of(path).string());
}

Result<std::string> read_text_file(const std::filesystem::path& path, std::uint64_t limit) {
    Result<File> file = File::open(path);
    if (!file) return fail(file.error());
    Result<std::uint64_t> size = file->size();
    if (!size) return fail(size.error().within(path.string()));
    if (*size > limit) return fail(ErrorKind::invalid, "{}: {} bytes, at most {} allowed", path.string(), *size, limit);
    std::string text(*size, '\0');
    Status read = file->read_at(0, std::as_writable_bytes(std::span(text)));
    if (!read) return fail(read.error().within(path.string()));
    return text;
}

Status write_text_file(const std::filesystem::path& path, std::string_view text) {
    Result<AtomicFile> file = AtomicFile::create(path);
    if (!file) return fail(file.error());
    if (Status written = file->append(std::as_bytes(std::span(text))); !written) return written;
    return file->commit();
}

}  // namespace kvasir
