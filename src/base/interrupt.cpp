#include "base/interrupt.h"

#include <unistd.h>

#include <csignal>
#include <cstring>

namespace kvasir {
namespace {

constexpr const char* kLine = "kvasir: interrupted; nothing was left behind\n";

struct State {
    std::atomic<bool> came = false;
    std::atomic<int> number = 0;
};

State& state() {
    static State instance;
    return instance;
}

void handle_signals(void (*handler)(int), int flags) {
    state().came = false;  // also makes the state before a handler may want it
    state().number = 0;
    struct sigaction action {};
    action.sa_handler = handler;
    action.sa_flags = flags;
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
        struct sigaction before {};
        if (sigaction(number, nullptr, &before) == 0 && before.sa_handler != SIG_IGN) {
            sigaction(number, &action, nullptr);
        }
    }
}

// Async-signal-safe, as is the one below.
void say_and_end(int number) {
    const ssize_t ignored = ::write(STDERR_FILENO, kLine, std::strlen(kLine));
    static_cast<void>(ignored);
    ::_exit(128 + number);
}

void note(int number) {
    int none = 0;
    state().number.compare_exchange_strong(none, number);
    state().came = true;
}

}  // namespace

void end_at_once_on_signals() {
    handle_signals(say_and_end, static_cast<int>(SA_RESTART));
}

void end_politely_on_signals() {
    handle_signals(note, static_cast<int>(SA_RESETHAND | SA_RESTART));
}

bool interrupted() {
    return state().came;
}

const std::atomic<bool>& interruption() {
    return state().came;
}

int interruption_code() {
    const int number = state().number;
    return number == 0 ? 0 : 128 + number;
}

}  // namespace kvasir
