#!/usr/bin/env bash
# clang-tidy over src/, two files at a time. A file that passed is not looked at again until it, a header of ours or
# the configuration changes.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

"$root/scripts/build.sh" build-tidy -DCMAKE_C_COMPILER=clang-14 -DCMAKE_CXX_COMPILER=clang++-14 -- help >/dev/null
passes=$cache/tidy
mkdir -p "$passes"
cd "$root"
common=$({ cat .clang-tidy && git ls-files 'src/*.h' | xargs cat; } | sha256sum)
export root passes common

tidy_one() {
    local key
    key=$({ printf '%s' "$common" && cat "$1"; } | sha256sum | cut -c 1-32)
    [ -e "$passes/$key" ] && return 0
    clang-tidy-14 -p build-tidy --quiet --warnings-as-errors='*' "$1" 2>/dev/null && touch "$passes/$key" && return 0
    printf 'kvasir: clang-tidy: %s\n' "$1"
    return 1
}
export -f tidy_one
git ls-files 'src/*.cpp' | xargs -P 2 -I {} bash -c 'tidy_one {}' || die "clang-tidy found something (above)"
say "clang-tidy: clean"
