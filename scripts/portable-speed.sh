#!/usr/bin/env bash
# How fast portable/1's kernels are where there is no such machine or no such compiler to compare with: tables as in
# docs/portable-speed.md. scripts/portable-speed.sh [instructions|wasm]…   (both without arguments)
#   instructions  what an AArch64 processor executes, the kernels beside ggml's; exact, the same every time
#   wasm          times in Node.js beside this machine's own
set -euo pipefail
. "$(dirname "$0")/lib.sh"
. "$root/scripts/portable-builds.sh"

# counted NAME PROCESSOR: the program's lines, each with the instructions between its marks. The emulator runs one
# instruction at a time and writes a line for each, which ends with the name of the function it is in.
counted() {
    local program=$out/aarch64/portable_instructions_$1 trace=$out/trace
    rm -f "$trace" && mkfifo "$trace"
    awk '/ count_begin$/ { on = 1; n = 0; next } / count_end$/ { if (on) print n; on = 0; next } on { n++ }' \
        "$trace" >"$out/counts" &
    timeout 600 qemu-aarch64-static -cpu "$2" -singlestep -d exec,nochain -D "$trace" "$program" >"$out/labels"
    wait $!
    rm -f "$trace"
    [ "$(wc -l <"$out/labels")" = "$(wc -l <"$out/counts")" ] || die "$1: the emulator's trace lacks marks"
    paste -d ' ' "$out/labels" "$out/counts"
}

count_instructions() {
    build_targets aarch64 "portable_instructions_neon portable_instructions_neon_dot portable_instructions_neon_i8mm" \
        "${aarch64_options[@]}" || die "portable_instructions could not be built (above)"
    {
        counted neon cortex-a57 | sed 's/^/1 /'
        counted neon_dot neoverse-n1 | sed 's/^/2 /'
        counted neon_i8mm max | sed 's/^/3 /'
    } | awk '
        { kind = $3 ~ /^neon/ ? "kernels" : $3; value[$4, $2, $1, kind] = $6 / $5 }
        !seen[$2]++ { types[++count] = $2 }
        END {
            split("1 2 8", order, " ")
            for (r = 1; r <= 3; r++) {
                printf "\n%d row%s, instructions per 256 weights\n\n", order[r], (order[r] > 1 ? "s" : "")
                printf "| type | Armv8.0: ggml | here | ratio | dot products: ggml | here | ratio "
                print "| i8mm: ggml | here | ratio | ggml by two |"
                print "|---|---|---|---|---|---|---|---|---|---|---|"
                for (i = 1; i <= count; i++) {
                    line = "| " types[i]
                    for (p = 1; p <= 3; p++) {
                        a = value[order[r], types[i], p, "ggml"]
                        b = value[order[r], types[i], p, "kernels"]
                        line = line sprintf(" | %.0f | %.0f | %.2f", a, b, a / b)
                    }
                    two = value[order[r], types[i], 3, "ggml_by_two"]
                    print line " | " (two ? sprintf("%.0f", two) : "") " |"
                }
            }
        }'
}

time_wasm() {
    local options
    mapfile -t options < <(native_options gcc g++ -O3)
    build_targets gcc-O3 portable_speed "${options[@]}" || die "portable_speed could not be built (above)"
    build_targets wasm portable_speed "${wasm_options[@]}" || die "portable_speed could not be built (above)"
    # Without the quick compiler, whose code the first multiplications would run.
    {
        "$out/gcc-O3/portable_speed" | sed 's/^/native /'
        node --no-warnings --no-liftoff "$source/run.mjs" "$out/wasm/portable_speed" "$vectors" | sed 's/^/node /'
    } | awk '
        $1 == "native" { native[$4, $2, $3] = $5; if (!known[$3]++) sets[++set_count] = $3 }
        $1 == "node" && $3 == "wasm" { wasm[$4, $2] = $5 }
        !seen[$2]++ { types[++count] = $2 }
        END {
            for (r = 1; r <= 8; r += 7) {
                printf "\n%d row%s, nanoseconds per 256 weights\n\n| type |", r, (r > 1 ? "s" : "")
                for (s = 1; s <= set_count; s++) printf " %s |", sets[s]
                printf " wasm |"
                for (s = 2; s <= set_count; s++) printf " %s ÷ wasm |", sets[s]
                printf "\n|"
                for (s = 0; s < 2 * set_count + 1; s++) printf "---|"
                print ""
                for (i = 1; i <= count; i++) {
                    printf "| %s |", types[i]
                    for (s = 1; s <= set_count; s++) printf " %.1f |", native[r, types[i], sets[s]]
                    printf " %.1f |", wasm[r, types[i]]
                    for (s = 2; s <= set_count; s++) printf " %.2f |", native[r, types[i], sets[s]] / wasm[r, types[i]]
                    print ""
                }
            }
        }'
}

[ $# -gt 0 ] || set -- instructions wasm
for part in "$@"; do
    case $part in
        instructions) count_instructions ;;
        wasm) time_wasm ;;
        *) die "unknown part '$part': instructions or wasm" ;;
    esac
done
