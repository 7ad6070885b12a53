#!/usr/bin/env bash
# Runs all tests of the built tree. Ends with "N passed, N failed".
set -euo pipefail
. "$(dirname "$0")/lib.sh"
. "$root/scripts/counting.sh"

run_ctest build
total "make test"
