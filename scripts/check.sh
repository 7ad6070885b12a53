#!/usr/bin/env bash
# What the tests do not cover: formatting, the tests under sanitizers, a short run of each fuzzer, portable/1 on other
# machines. scripts/check.sh [format|address|thread|fuzz|elsewhere]…   (all without arguments)
set -euo pipefail
. "$(dirname "$0")/lib.sh"
. "$root/scripts/counting.sh"

check_format() {
    local files
    mapfile -t files < <(cd "$root" && git ls-files 'src/*.h' 'src/*.cpp' 'tests/*.h' 'tests/*.cpp' 'fuzz/*.cpp')
    (cd "$root" && clang-format-14 --dry-run --Werror "${files[@]}")
}

build_sanitized() { # address|thread
    "$root/scripts/build.sh" "build-$1" -DCMAKE_BUILD_TYPE=RelWithDebInfo "-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O0 -g1" \
        "-DKVASIR_SANITIZE=$1"
}

# llama.cpp is not instrumented: what happens inside it is no finding about Kvasir.
run_address() {
    build_sanitized address &&
        run_ctest build-address ASAN_OPTIONS=detect_leaks=1 "LSAN_OPTIONS=suppressions=$root/scripts/lsan.supp" \
            UBSAN_OPTIONS=print_stacktrace=1
}
run_thread() {
    build_sanitized thread &&
        run_ctest build-thread OMP_NUM_THREADS=1 \
            "TSAN_OPTIONS=suppressions=$root/scripts/tsan.supp:ignore_noninstrumented_modules=1:halt_on_error=1"
}

run_fuzzers() {
    "$root/scripts/build.sh" build-fuzz -DCMAKE_C_COMPILER=clang-14 -DCMAKE_CXX_COMPILER=clang++-14 \
        -DKVASIR_FUZZ=ON -- fuzzers || return 1
    local fuzzer name seconds=${KVASIR_FUZZ_SECONDS:-10} work
    for fuzzer in "$root"/build-fuzz/fuzz/fuzz_*; do
        name=$(basename "$fuzzer")
        [ -f "$fuzzer" ] && [ -x "$fuzzer" ] || continue
        work=$root/build-fuzz/corpus-$name
        mkdir -p "$work"
        run_step "$name, $seconds s" fuzz_one "$fuzzer" "$seconds" "$work" "$root/fuzz/corpus/${name#fuzz_}"
    done
}
fuzz_one() { # program seconds working-corpus seeds
    "$1" "-max_total_time=$2" -timeout=10 -rss_limit_mb=2048 -max_len=65536 "-artifact_prefix=$root/build-fuzz/" \
        -print_final_stats=1 "$3" "$4" >"$3.log" 2>&1 || { tail -n 40 "$3.log" && return 1; }
    grep -E 'number_of_executed_units' "$3.log"
}

[ $# -gt 0 ] || set -- format address thread fuzz elsewhere
for part in "$@"; do
    case $part in
        format) run_step "clang-format" check_format ;;
        address | thread) "run_$part" || run_step "the $part sanitizer's build" false ;;
        fuzz) run_fuzzers || run_step "the fuzzers' build" false ;;
        elsewhere)
            # Without a network there are no cross compilers to be had; that must not look like a pass.
            if "$root/scripts/setup.sh" --elsewhere >/dev/null; then
                run_step "portable/1 elsewhere" "$root/scripts/portable-elsewhere.sh"
            else
                say "portable/1 elsewhere: SKIPPED, its Debian packages cannot be installed here"
            fi
            ;;
        *) die "unknown part '$part': format, address, thread, fuzz or elsewhere" ;;
    esac
done
total "make check"
