# Builds of portable/1 alone (tests/portable/elsewhere) in build-elsewhere/, for the scripts that need them. Source it
# after lib.sh; it asks setup.sh for what the builds need.
# shellcheck shell=bash

"$root/scripts/setup.sh" --elsewhere >/dev/null || die "what other machines need could not be installed (above)"
llama=$(llama_dir)
out=$root/build-elsewhere
vectors=$root/docs/portable-vectors
source=$root/tests/portable/elsewhere
export CCACHE_DIR=$cache/ccache CCACHE_NOHASHDIR=1 CCACHE_BASEDIR=$root CCACHE_MAXSIZE=5G
mkdir -p "$out"

aarch64_options=(
    -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64
    -DCMAKE_C_COMPILER=aarch64-linux-gnu-gcc -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++
    -DCMAKE_EXE_LINKER_FLAGS=-static -DKVASIR_GTEST_SOURCE=/usr/src/googletest/googletest
)
wasm_cxx_flags=(
    -msimd128 -fno-exceptions -include "$source/libcxx14.h"
    -DJSON_HAS_FILESYSTEM=0 -DJSON_HAS_EXPERIMENTAL_FILESYSTEM=0
)
wasm_options=(
    -DCMAKE_SYSTEM_NAME=Generic -DCMAKE_SYSTEM_PROCESSOR=wasm32 -DCMAKE_SYSROOT=/usr
    -DCMAKE_C_COMPILER=clang-14 -DCMAKE_C_COMPILER_TARGET=wasm32-wasi
    -DCMAKE_CXX_COMPILER=clang++-14 -DCMAKE_CXX_COMPILER_TARGET=wasm32-wasi
    "-DCMAKE_C_FLAGS=-msimd128 -D_WASI_EMULATED_SIGNAL"
    "-DCMAKE_CXX_FLAGS=${wasm_cxx_flags[*]}"
)
native_options() { # C-COMPILER C++-COMPILER LEVEL
    printf '%s\n' "-DCMAKE_C_COMPILER=$1" "-DCMAKE_CXX_COMPILER=$2" "-DKVASIR_PORTABLE_LEVEL=$3"
}

# build_targets NAME "TARGET…" [-DOPTION=…]…: in $out/NAME, with its log in $out/NAME.log. Shows what went wrong.
build_targets() {
    local name=$1 targets log=$out/$1.log
    read -ra targets <<<"$2"
    shift 2
    { cmake -S "$source" -B "$out/$name" -G Ninja "-DKVASIR_GGML_SOURCE=$llama/src/ggml" \
        -DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache "$@" &&
        cmake --build "$out/$name" --target "${targets[@]}"; } >"$log" 2>&1 && return 0
    grep -E -A 5 'error|FAILED' "$log" | head -n 40
    return 1
}
