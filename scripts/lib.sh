# Shared by the project's scripts: messages, the cache's place, and where this machine's llama.cpp lives.
# Source it; it changes nothing by itself.
# shellcheck shell=bash

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=${KVASIR_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/kvasir}

# The one pinned release of llama.cpp: v0.5.0, shipped as a git bundle inside this npm package.
npm_package=node-llama-cpp@3.22.1
npm_sha512=6e5b488a9b9699cd76dc7eed30880318a4ac4ab866865418795502e3c5d38d55bb5c624988927209d95333343f2e25a83e4183a5c2f816f883a60c3ba9f4e20f
llama_commit=de3ff815ea7d559ee917f063901b8986f038abc6

llama_flags=(
    -DCMAKE_BUILD_TYPE=Release
    -DBUILD_SHARED_LIBS=ON
    -DGGML_NATIVE=ON
    -DGGML_OPENMP=ON
    -DLLAMA_CURL=OFF
    -DLLAMA_OPENSSL=OFF
    -DLLAMA_BUILD_TESTS=OFF
    -DLLAMA_BUILD_APP=OFF
    -DLLAMA_BUILD_UI=OFF
    -DLLAMA_USE_PREBUILT_UI=OFF
)
# The server library is linked into kvasir; the tools are what the tests compare it with.
llama_targets=(llama-server-impl llama-server llama-completion llama-bench llama-gguf)

say() { printf 'kvasir: %s\n' "$*"; }
die() {
    printf 'kvasir: error: %s\n' "$*" >&2
    exit 1
}

# A build made for one processor or compiler must not be taken for another's: both are part of the key.
llama_key() {
    {
        if [ -n "${KVASIR_LLAMA_SOURCE:-}" ]; then
            printf '%s %s\n' "$KVASIR_LLAMA_SOURCE" "$(git -C "$KVASIR_LLAMA_SOURCE" rev-parse HEAD 2>/dev/null)"
        else
            printf '%s\n' "$llama_commit"
        fi
        printf '%s\n' "${llama_flags[@]}" "${llama_targets[@]}"
        c++ --version 2>/dev/null | head -n 1
        uname -m
        grep -m 1 -E '^(flags|Features)' /proc/cpuinfo
    } | sha256sum | cut -c 1-12
}

llama_dir() { printf '%s/llama/%s\n' "$cache" "$(llama_key)"; }
