#include "base/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

namespace kvasir {
namespace {

std::vector<char*> pointers(std::vector<std::string>& strings) {
    std::vector<char*> result;
    result.reserve(strings.size() + 1);
    for (std::string& text : strings)
        result.push_back(text.data());
    result.push_back(nullptr);
    return result;
}

std::vector<std::string> merged_environment(const std::vector<std::string>& added) {
    std::vector<std::string> result;
    for (char** entry = environ; *entry != nullptr; ++entry)
        result.emplace_back(*entry);
    for (const std::string& entry : added) {
        std::string name = entry.substr(0, entry.find('=') + 1);
        std::erase_if(result, [&](const std::string& old) { return old.starts_with(name); });
        result.push_back(entry);
    }
    return result;
}

}  // namespace

Result<std::unique_ptr<ChildProcess>> ChildProcess::start(const ChildOptions& options) {
    if (::access(options.arguments.at(0).c_str(), X_OK) != 0) {
        return fail(ErrorKind::io, "cannot run {}: {}", options.arguments[0], std::strerror(errno));
    }
    std::array<int, 2> out{};
    std::array<int, 2> err{};
    if (::pipe2(out.data(), O_CLOEXEC) != 0 || ::pipe2(err.data(), O_CLOEXEC) != 0) {
        return fail(ErrorKind::io, "cannot make a pipe: {}", std::strerror(errno));
    }
    std::vector<std::string> arguments = options.arguments;
    std::vector<std::string> environment = merged_environment(options.environment);
    std::vector<char*> argv = pointers(arguments);
    std::vector<char*> envp = pointers(environment);
    pid_t parent = ::getpid();
    pid_t pid = ::fork();
    if (pid < 0) return fail(ErrorKind::io, "cannot start a process: {}", std::strerror(errno));
    if (pid == 0) {
        // Only async-signal-safe calls from here to exec.
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (::getppid() != parent) ::_exit(127);
        int null = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
        ::dup2(null, STDIN_FILENO);
        ::dup2(out[1], STDOUT_FILENO);
        ::dup2(err[1], STDERR_FILENO);
        ::execve(argv[0], argv.data(), envp.data());
        ::_exit(127);
    }
    ::close(out[1]);
    ::close(err[1]);
    std::unique_ptr<ChildProcess> child(new ChildProcess);
    child->pid_ = pid;
    ChildProcess* self = child.get();
    child->threads_.emplace_back([self, out] { self->collect(out[0], &self->stdout_); });
    child->threads_.emplace_back([self, err] { self->collect(err[0], &self->stderr_); });
    child->threads_.emplace_back([self] { self->reap(); });
    return child;
}

ChildProcess::~ChildProcess() {
    signal(SIGKILL);
    for (std::thread& thread : threads_)
        thread.join();
}

// Reads until the stream ends, or nothing more comes from an ended process: a grandchild may hold the pipe open.
void ChildProcess::collect(int descriptor, std::string* into) {
    std::array<char, 4096> buffer;
    for (;;) {
        pollfd poll{.fd = descriptor, .events = POLLIN, .revents = 0};
        bool ended = !running();
        int ready = ::poll(&poll, 1, 50);
        if (ready == 0 && ended) break;
        if (ready <= 0) continue;
        ssize_t got = ::read(descriptor, buffer.data(), buffer.size());
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        std::lock_guard lock(mutex_);
        into->append(buffer.data(), static_cast<std::size_t>(got));
        changed_.notify_all();
    }
    ::close(descriptor);
    std::lock_guard lock(mutex_);
    ++streams_ended_;
    changed_.notify_all();
}

// Waits without collecting the zombie, so that the pid stays ours until no signal can be on its way to it.
void ChildProcess::reap() {
    siginfo_t info{};
    while (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT) != 0 && errno == EINTR) {
    }
    std::lock_guard lock(mutex_);
    int status = 0;
    ::waitpid(pid_, &status, 0);
    exit_code_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    changed_.notify_all();
}

void ChildProcess::signal(int number) {
    std::lock_guard lock(mutex_);
    if (!exit_code_) ::kill(pid_, number);
}

Result<int> ChildProcess::wait(std::chrono::milliseconds timeout) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, timeout, [this] { return exit_code_.has_value() && streams_ended_ == 2; })) {
        return fail(ErrorKind::unavailable, "process {} still runs after {} ms", pid_, timeout.count());
    }
    return *exit_code_;
}

bool ChildProcess::running() {
    std::lock_guard lock(mutex_);
    return !exit_code_;
}

Result<std::string> ChildProcess::wait_for_line(std::string_view text, std::chrono::milliseconds timeout) {
    auto find = [text](const std::string& output) -> std::optional<std::string> {
        std::size_t at = output.find(text);
        if (at == std::string::npos) return std::nullopt;
        std::size_t end = output.find('\n', at);
        if (end == std::string::npos) return std::nullopt;
        std::size_t newline = output.rfind('\n', at);
        std::size_t begin = newline == std::string::npos ? 0 : newline + 1;
        return output.substr(begin, end - begin);
    };
    std::unique_lock lock(mutex_);
    std::optional<std::string> line;
    changed_.wait_for(lock, timeout, [&] {
        line = find(stdout_);
        if (!line) line = find(stderr_);
        return line.has_value() || streams_ended_ == 2;
    });
    if (line) return *line;
    return fail(ErrorKind::unavailable, "no line with '{}' came ({}); its errors were: {}", text,
                exit_code_ ? fmt::format("the process ended with {}", *exit_code_) : "in time", stderr_);
}

std::string ChildProcess::stdout_text() const {
    std::lock_guard lock(mutex_);
    return stdout_;
}
std::string ChildProcess::stderr_text() const {
    std::lock_guard lock(mutex_);
    return stderr_;
}

}  // namespace kvasir
