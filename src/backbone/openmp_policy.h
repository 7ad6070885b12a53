// How long the threads of ggml's OpenMP team spin before they sleep.
#pragma once

namespace kvasir {

// libgomp reads its environment when it is loaded, so the only way to choose is to set it and start this program
// anew. Call first thing in main() with its argv. Returns (having done nothing) when the user or an earlier pass has
// set OMP_WAIT_POLICY or GOMP_SPINCOUNT, or when starting anew fails.
void reexec_with_openmp_policy(char** argv);

}  // namespace kvasir
