#include "cli/stop_signals.h"

#include <cerrno>
#include <ctime>

namespace kvasir::cli {

StopSignals::StopSignals() {
    sigemptyset(&set_);
    for (const int number : {SIGTERM, SIGINT, SIGHUP}) {
        struct sigaction current {};
        if (sigaction(number, nullptr, &current) == 0 && current.sa_handler != SIG_IGN) sigaddset(&set_, number);
    }
    pthread_sigmask(SIG_BLOCK, &set_, nullptr);
}

bool StopSignals::wait(std::chrono::seconds timeout) const {
    const timespec time{timeout.count(), 0};
    int number = -1;
    do
        number = sigtimedwait(&set_, nullptr, &time);
    while (number < 0 && errno == EINTR);
    return number > 0;
}

void StopSignals::release() const {
    pthread_sigmask(SIG_UNBLOCK, &set_, nullptr);
}

}  // namespace kvasir::cli
