// llama.cpp maps a model and has the kernel read all of it at once (MAP_POPULATE, then POSIX_MADV_WILLNEED), which for
// a model larger than memory reads everything through once and keeps the wrong part. These two definitions of libc
// functions take precedence over libc's own for every library of the process, when they are part of the program, or of
// a library in LD_PRELOAD, and leave the reading to the first use of each page. All else goes to the kernel unchanged.
// With KVASIR_EAGER_MAPPING in the environment everything does: for measuring what stock llama.cpp does.
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

namespace {

bool is_regular_file(int descriptor) {
    struct stat status {};
    return descriptor >= 0 && fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
}

bool eager() {
    return std::getenv("KVASIR_EAGER_MAPPING") != nullptr;
}

}  // namespace

// The signatures are libc's, not our choice.
// NOLINTBEGIN(readability-identifier-naming,bugprone-easily-swappable-parameters,google-runtime-int)
extern "C" {

__attribute__((visibility("default"))) void* mmap(void* address, size_t length, int protection, int flags,
                                                  int descriptor, off_t offset) noexcept {
    bool populates = (flags & MAP_POPULATE) != 0 && (flags & MAP_ANONYMOUS) == 0 && protection == PROT_READ;
    if (populates && !eager() && is_regular_file(descriptor)) flags &= ~MAP_POPULATE;
    long result = syscall(SYS_mmap, address, length, protection, flags, descriptor, offset);
    return reinterpret_cast<void*>(result);  // -1, with errno set, is MAP_FAILED
}

__attribute__((visibility("default"))) int posix_madvise(void* address, size_t length, int advice) noexcept {
    // glibc ignores POSIX_MADV_DONTNEED, which the kernel would take for an order to drop the pages.
    if (advice == POSIX_MADV_DONTNEED) return 0;
    // Advice may always be ignored; this one is.
    if (advice == POSIX_MADV_WILLNEED && !eager()) return 0;
    int saved = errno;
    int result = syscall(SYS_madvise, address, length, advice) == 0 ? 0 : errno;
    errno = saved;
    return result;
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming,bugprone-easily-swappable-parameters,google-runtime-int)
