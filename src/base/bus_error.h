// Files that are read through memory maps can be cut short, or fail to be read, while a program runs.
#pragma once

namespace kvasir {

// From now on SIGBUS, which the system sends to whoever reads what a file no longer has, ends the program with a line
// that says so and with the exit code of ErrorKind::io.
void report_bus_errors();

}  // namespace kvasir
