// Errors as values. Nothing in Kvasir throws across a module border: a function that can fail returns a Result, and
// what third-party code throws is caught where it is called.
#pragma once

#include <fmt/format.h>

#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace kvasir {

// What kind of thing went wrong; it decides a program's exit code and nothing else.
enum class ErrorKind {
    mismatch,     // a comparison failed: damaged data, different results (exit code 1)
    usage,        // a wrong flag, argument or configuration value (exit code 2)
    invalid,      // input that breaks its format's rules: a truncated model, a hostile frame (exit code 3)
    unsupported,  // valid input that this build can't serve: an unknown activation, a newer version (exit code 3)
    unavailable,  // something else is away or busy: a port, a worker, a deadline passed (exit code 4)
    io,           // the system refused: no such file, no space, no permission (exit code 4)
    internal,     // a bug of ours (exit code 70)
};

struct Error {
    ErrorKind kind = ErrorKind::internal;
    std::string message;  // What was wrong, where, and what to do; no trailing full stop or newline.

    // The same error with `context` and ": " in front of its message.
    Error within(std::string_view context) const { return {kind, fmt::format("{}: {}", context, message)}; }
};

template <class T>
using Result = tl::expected<T, Error>;
using Status = Result<void>;

// `return fail(ErrorKind::invalid, "{}: magic is {:#x}", path, magic);`
template <class... Args>
tl::unexpected<Error> fail(ErrorKind kind, fmt::format_string<Args...> format, Args&&... args) {
    return tl::unexpected<Error>(Error{kind, fmt::format(format, std::forward<Args>(args)...)});
}

// Hands an error on: `if (!x) return fail(x.error());`
inline tl::unexpected<Error> fail(Error error) {
    return tl::unexpected<Error>(std::move(error));
}

// The process exit code that stands for `kind`; 0 is success.
int exit_code(ErrorKind kind);

}  // namespace kvasir
