// A child process whose output is read line by line; for the demo, the benchmarks and the end-to-end tests.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/result.h"

namespace kvasir {

struct ChildOptions {
    std::vector<std::string> arguments;    // arguments[0] is the program's path.
    std::vector<std::string> environment;  // "NAME=value", added to this process's own.
};

// Runs one program, its standard input empty, stdout and stderr collected. It is killed when its parent dies and when
// this object goes. Thread-safe.
class ChildProcess {
  public:
    // A program that is not there or may not be run is ErrorKind::io.
    static Result<std::unique_ptr<ChildProcess>> start(const ChildOptions& options);
    ~ChildProcess();
    ChildProcess(const ChildProcess&) = delete;
    ChildProcess& operator=(const ChildProcess&) = delete;

    int pid() const { return pid_; }
    // Sends a signal; does nothing once the process has ended.
    void signal(int number);
    // The exit code (128 + n if killed by signal n) once all output is collected, or ErrorKind::unavailable when it
    // still runs after `timeout`.
    Result<int> wait(std::chrono::milliseconds timeout);
    bool running();
    // The first line of stdout or stderr that contains `text`; fails when the process ends or `timeout` passes.
    Result<std::string> wait_for_line(std::string_view text, std::chrono::milliseconds timeout);
    std::string stdout_text() const;
    std::string stderr_text() const;

  private:
    ChildProcess() = default;
    void collect(int descriptor, std::string* into);
    void reap();

    int pid_ = -1;
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::optional<int> exit_code_;
    int streams_ended_ = 0;
    std::string stdout_;
    std::string stderr_;
    std::vector<std::thread> threads_;
};

}  // namespace kvasir
