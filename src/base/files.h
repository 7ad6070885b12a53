// Files as owned descriptors and memory maps, and writing that is all or nothing.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/bytes.h"
#include "base/result.h"

namespace kvasir {

// Owns a file descriptor.
class File {
  public:
    File() = default;
    explicit File(int descriptor) : descriptor_(descriptor) {}
    ~File();
    File(File&& other) noexcept;
    File& operator=(File&& other) noexcept;

    // Opens a regular file for reading; a directory or a device is refused by name.
    static Result<File> open(const std::filesystem::path& path);

    int descriptor() const { return descriptor_; }
    Result<std::uint64_t> size() const;
    // Fills all of `out` from `offset`, or fails; a file that ends early is ErrorKind::invalid.
    Status read_at(std::uint64_t offset, std::span<std::byte> out) const;

  private:
    int descriptor_ = -1;
};

// A whole file mapped read-only and shared: its pages are the page cache's, resident only once touched.
class MappedFile {
  public:
    MappedFile() = default;
    ~MappedFile();
    MappedFile(MappedFile&& other) noexcept;
    MappedFile& operator=(MappedFile&& other) noexcept;

    static Result<MappedFile> open(const std::filesystem::path& path);
    ByteSpan bytes() const { return {static_cast<const std::byte*>(address_), size_}; }

  private:
    void* address_ = nullptr;
    std::size_t size_ = 0;
};

// A file that appears under its name only when it is complete: written without a name (where the file system can't: as
// a temporary file in the same directory), synced and renamed by `commit()`; gone if it never comes to that.
class AtomicFile {
  public:
    // An existing regular file at `path` will be replaced; anything else there is refused (ErrorKind::usage).
    static Result<AtomicFile> create(const std::filesystem::path& path);
    ~AtomicFile();
    AtomicFile(AtomicFile&& other) noexcept;
    AtomicFile& operator=(AtomicFile&&) = delete;

    int descriptor() const { return file_.descriptor(); }
    Status append(ByteSpan bytes);
    // Appends `length` bytes of `source` from `offset`, by the kernel's copy offload (copy_file_range) where it can.
    Status append_from(const File& source, std::uint64_t offset, std::uint64_t length);
    // Appends zero bytes up to the next multiple of `alignment`.
    Status pad_to(std::uint64_t alignment);
    std::uint64_t size() const { return size_; }
    // Where this process may open what was written so far.
    std::filesystem::path contents_path() const;
    Status commit();
    // The same, but never replaces: false, and nothing done, where something has that name already.
    Result<bool> commit_new();

  private:
    AtomicFile() = default;
    bool link_as(const std::filesystem::path& name) const;

    File file_;
    std::filesystem::path path_;
    std::filesystem::path temporary_;
    bool named_ = false;  // there is a file called temporary_
    std::uint64_t size_ = 0;
};

// The directory that a file named `path` will be in is there; ErrorKind::usage otherwise.
Status check_directory_of(const std::filesystem::path& path);

// The whole of a (small) file; more than `limit` bytes are refused.
Result<std::string> read_text_file(const std::filesystem::path& path, std::uint64_t limit);
// Writes through AtomicFile.
Status write_text_file(const std::filesystem::path& path, std::string_view text);

}  // namespace kvasir
