#include "demo/interrupt.h"

#include <atomic>
#include <csignal>

namespace kvasir {
namespace {

std::atomic<bool>& flag() {
    static std::atomic<bool> instance = false;
    return instance;
}

}  // namespace

void end_politely_on_signals() {
    flag() = false;  // also makes the flag before a handler may want it
    struct sigaction action {};
    action.sa_handler = [](int) { flag() = true; };
    action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
    for (const int number : {SIGINT, SIGTERM, SIGHUP})
        sigaction(number, &action, nullptr);
}

bool interrupted() {
    return flag();
}

}  // namespace kvasir
