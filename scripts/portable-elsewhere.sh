#!/usr/bin/env bash
# portable/1 away from this machine and its compiler: the same library built by GCC and Clang with and without
# optimisation, for AArch64 (run by an emulator, with and without dot products) and for WebAssembly (run by Node.js).
# Every build must give the vectors' bits and, on random inputs, the same digest. A result line for each.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

. "$root/scripts/portable-builds.sh"

passed=0
failed=0
digests=()

# build NAME [-DOPTION=…]…: all of it, in $out/NAME.
build() {
    build_targets "$1" all "${@:2}" && return 0
    count "$1, the build" 0 1
    return 1
}

# count WHAT PASSED FAILED
count() {
    passed=$((passed + $2))
    failed=$((failed + $3))
    say "portable/1, $1: $2 passed, $3 failed"
}

# bits WHAT IMPLEMENTATIONS COMMAND…: a run of portable_bits, which must have had these implementations.
bits() {
    local what=$1 expected=$2 text ran digest
    shift 2
    text=$("$@" "$vectors" 2>&1) || true
    grep FAILED <<<"$text" | head -n 20 || true
    ran=$(sed -n 's/^ran //p' <<<"$text")
    digest=$(sed -n 's/^digest //p' <<<"$text")
    # The order is that of the list; what the processor of this machine adds is welcome.
    if [ -z "$digest" ] || [[ $ran != "$expected"* ]]; then
        tail -n 20 <<<"$text"
        count "$what, which ran '$ran' and not '$expected'" 0 1
        return 0
    fi
    digests+=("$digest")
    local result
    result=$(tail -n 1 <<<"$text")
    count "$what ($ran)" "${result%% *}" "$(sed -E 's/.*, ([0-9]+) failed/\1/' <<<"$result")"
}

# tests WHAT FILTER PROCESSOR: the GoogleTest program on an emulated processor, in two processes.
tests() {
    local what=$1 shard log ran good all_good=0 bad=0
    for shard in 0 1; do
        GTEST_TOTAL_SHARDS=2 GTEST_SHARD_INDEX=$shard timeout 300 qemu-aarch64-static -cpu "$3" \
            "$out/aarch64/portable_tests" "--gtest_filter=$2" --gtest_brief=1 >"$out/aarch64-tests-$3-$shard.log" 2>&1 &
    done
    wait
    for shard in 0 1; do
        log=$out/aarch64-tests-$3-$shard.log
        ran=$(sed -nE 's/^\[=+\] ([0-9]+) tests? from .* ran.*/\1/p' "$log")
        good=$(sed -nE 's/^\[ +PASSED +\] ([0-9]+) tests?\..*/\1/p' "$log")
        # A program that ended early says neither.
        [ -n "$ran" ] && [ -n "$good" ] || { ran=1 && good=0; }
        [ "$ran" = "$good" ] || tail -n 20 "$log"
        all_good=$((all_good + good))
        bad=$((bad + ran - good))
    done
    [ $((all_good + bad)) -gt 0 ] || bad=1  # the filter fits nothing
    count "$what" "$all_good" "$bad"
}

# ---- this machine, other compilers

native() { # NAME C-COMPILER C++-COMPILER LEVEL
    local options
    mapfile -t options < <(native_options "$2" "$3" "$4")
    build "$1" "${options[@]}" || return 0
    bits "$1" "reference plain" "$out/$1/portable_bits"
}
native gcc-O0 gcc g++ -O0
native gcc-O3 gcc g++ -O3
native clang-O3 clang-14 clang++-14 -O3

# ---- AArch64; the functions' error bounds, which the tests hold against long double, are the reference's alone and
# the same here if its digest is.

if build aarch64 "${aarch64_options[@]}"; then
    bits aarch64 "reference plain neon neon_dot neon_i8mm" qemu-aarch64-static -cpu max "$out/aarch64/portable_bits"
    bits "aarch64, Armv8.2" "reference plain neon neon_dot" qemu-aarch64-static -cpu neoverse-n1 \
        "$out/aarch64/portable_bits"
    bits "aarch64, Armv8.0" "reference plain neon" qemu-aarch64-static -cpu cortex-a57 "$out/aarch64/portable_bits"
    tests "aarch64's tests (all but Functions.*)" "-Functions.*" max
    tests "aarch64's tests, Armv8.0 (those of NEON)" "*neon*:Kernels.*" cortex-a57
fi

# ---- WebAssembly

if build wasm "${wasm_options[@]}"; then
    bits wasm "reference plain wasm" node --no-warnings "$source/run.mjs" "$out/wasm/portable_bits"
fi

# ---- all together

if [ "$(printf '%s\n' "${digests[@]}" | sort -u | wc -l)" = 1 ] && [ ${#digests[@]} -gt 1 ]; then
    count "one digest from all ${#digests[@]} runs" 1 0
else
    printf '%s\n' "${digests[@]}"
    count "one digest from all ${#digests[@]} runs" 0 1
fi
say "portable/1, all of it: $passed passed, $failed failed"
[ "$failed" = 0 ]
