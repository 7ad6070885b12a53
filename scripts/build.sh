#!/usr/bin/env bash
# Configures and builds one build directory: scripts/build.sh DIR [-DOPTION=…]… [-- TARGET…]
set -euo pipefail
. "$(dirname "$0")/lib.sh"

dir=$root/$1
shift
options=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    options+=("$1")
    shift
done
[ $# -eq 0 ] || shift
# Objects are keyed by content and flags, not by where the checkout lies: a fresh clone hits the same cache.
export CCACHE_DIR=$cache/ccache CCACHE_NOHASHDIR=1 CCACHE_BASEDIR=$root CCACHE_MAXSIZE=5G
cmake -S "$root" -B "$dir" -G Ninja "${options[@]}" >"$dir.log" 2>&1 || { tail -n 30 "$dir.log" >&2 && die "cmake failed (log: $dir.log)"; }
start=$SECONDS
if [ $# -gt 0 ]; then
    cmake --build "$dir" --target "$@"
else
    cmake --build "$dir"
fi
say "built ${dir#"$root"/} in $((SECONDS - start)) s"
