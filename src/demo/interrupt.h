// Signals that ask the process to end, so that it can clean up first.
#pragma once

namespace kvasir {

// From now on SIGINT, SIGTERM and SIGHUP only set a flag, the first time; a second signal kills as usual.
void end_politely_on_signals();
bool interrupted();

}  // namespace kvasir
