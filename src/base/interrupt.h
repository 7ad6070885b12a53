// Signals that ask the process to end: SIGINT, SIGTERM and SIGHUP. One that the process was started to ignore (nohup, a
// script's background job) stays ignored.
#pragma once

#include <atomic>

namespace kvasir {

// From now on they end the process at once, with a line on stderr and 128 + the signal's number as exit code. For work
// that has nothing to clean up, which is what every program begins with.
void end_at_once_on_signals();

// From now on they only note that they came, the first time; a second of the same kind kills as usual. For work that
// has something to clean up, and looks at interrupted() or takes interruption() as its `cancel`.
void end_politely_on_signals();
bool interrupted();
const std::atomic<bool>& interruption();
// 128 + the number of the first signal that came: 130 for SIGINT, 143 for SIGTERM; 0 if none did.
int interruption_code();

}  // namespace kvasir
