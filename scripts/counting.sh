# Counts what ran: source it, call run_ctest or run_step, then total.
# shellcheck shell=bash

passed=0
failed=0
skipped=0

# run_ctest DIR [ENV=…]…: all tests of a build directory.
run_ctest() {
    local dir=$root/$1 out
    shift
    out=$dir/ctest.log
    env "$@" ctest --test-dir "$dir" --output-on-failure --no-tests=error -j 2 --timeout 300 2>&1 | tee "$out" |
        { grep -vE '^ *(Start|[0-9]+/[0-9]+ Test +#).*(Start|Passed)|^ +Start ' || true; }
    local summary failures all skips
    summary=$(grep -E '^[0-9]+% tests passed' "$out" || true)
    [ -n "$summary" ] || { failed=$((failed + 1)) && say "the tests of $dir could not run" && return 0; }
    failures=$(sed -E 's/.*, ([0-9]+) tests failed out of.*/\1/' <<<"$summary")
    all=$(sed -E 's/.* out of ([0-9]+).*/\1/' <<<"$summary")
    skips=$(grep -cE '\*\*\*Skipped' "$out" || true)
    failed=$((failed + failures))
    skipped=$((skipped + skips))
    passed=$((passed + all - failures - skips))
}

# run_step NAME COMMAND…: one command that passes or fails as a whole.
run_step() {
    local name=$1 start=$SECONDS
    shift
    if "$@"; then
        passed=$((passed + 1))
        say "$name: passed ($((SECONDS - start)) s)"
    else
        failed=$((failed + 1))
        say "$name: FAILED ($((SECONDS - start)) s)"
    fi
}

# Prints the totals and fails if anything failed.
total() {
    [ "$skipped" = 0 ] || say "$1: $skipped skipped, each with its reason above"
    printf '%d passed, %d failed\n' "$passed" "$failed"
    if [ -n "${KVASIR_TOTALS:-}" ]; then printf '%d %d\n' "$passed" "$failed" >>"$KVASIR_TOTALS"; fi
    [ "$failed" = 0 ]
}
