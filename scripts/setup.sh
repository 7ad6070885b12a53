#!/usr/bin/env bash
# Prepares a Debian 12 machine to build Kvasir: Debian packages, and one unmodified build of the pinned llama.cpp in
# a cache outside the checkout. Safe to run again: what is there is not done twice.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

usage() {
    cat <<USAGE
Usage: scripts/setup.sh [--llama-source DIR] [--print-llama-dir] [--elsewhere]

  --llama-source DIR   build this llama.cpp checkout instead of the pinned release (also: KVASIR_LLAMA_SOURCE)
  --print-llama-dir    only print where this machine's llama.cpp build belongs
  --elsewhere          also install what scripts/portable-elsewhere.sh needs: cross compilers, an emulator, Node.js

The cache is \$KVASIR_CACHE (now: $cache). The first run takes about ten minutes on two cores, a later one seconds.
USAGE
}

print_only=
elsewhere=
while [ $# -gt 0 ]; do
    case $1 in
        --llama-source)
            [ $# -ge 2 ] || die "--llama-source needs a directory"
            KVASIR_LLAMA_SOURCE=$(realpath -e "$2") || die "--llama-source $2: no such directory"
            export KVASIR_LLAMA_SOURCE
            shift 2
            ;;
        --print-llama-dir) print_only=1 && shift ;;
        --elsewhere) elsewhere=1 && shift ;;
        -h | --help) usage && exit 0 ;;
        *) usage >&2 && die "unknown argument '$1'" ;;
    esac
done
if [ -n "$print_only" ]; then
    llama_dir
    exit 0
fi

packages=(
    build-essential cmake ninja-build ccache git ca-certificates
    libexpected-dev libcli11-dev nlohmann-json3-dev libspdlog-dev libfmt-dev libboost1.81-dev libssl-dev
    libxxhash-dev libsqlite3-dev libgtest-dev libgmock-dev
    clang-14 libclang-rt-14-dev clang-format-14 clang-tidy-14
)
[ -z "$elsewhere" ] || packages+=(
    g++-aarch64-linux-gnu qemu-user-static
    lld-14 wasi-libc libc++-14-dev-wasm32 libc++abi-14-dev-wasm32 libclang-rt-14-dev-wasm32
)

install_packages() {
    command -v dpkg-query >/dev/null || die "this is not a Debian system: install by hand: ${packages[*]}, npm"
    local missing=() package
    for package in "${packages[@]}"; do
        dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
    done
    # Only a machine that has to fetch llama.cpp needs npm, and some have one that Debian did not install.
    if [ -z "${KVASIR_LLAMA_SOURCE:-}" ] && ! [ -e "$(llama_dir)/ready" ] && ! command -v npm >/dev/null; then
        missing+=(npm)
    fi
    if [ -n "$elsewhere" ] && ! command -v node >/dev/null; then missing+=(nodejs); fi
    [ ${#missing[@]} -gt 0 ] || return 0
    say "installing ${#missing[@]} Debian packages: ${missing[*]}"
    local as_root=()
    if [ "$(id -u)" != 0 ]; then
        command -v sudo >/dev/null || die "packages are missing and neither root nor sudo is at hand: ${missing[*]}"
        as_root=(sudo)
    fi
    "${as_root[@]}" apt-get update -qq || say "could not refresh the package lists; going on with the old ones"
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" \
        >"$log" 2>&1 || { tail -n 20 "$log" >&2 && die "apt-get could not install: ${missing[*]}"; }
}

need_space() { # MiB directory
    local free
    free=$(df -Pm "$2" | awk 'NR == 2 { print $4 }')
    [ "$free" -ge "$1" ] || die "$2 has $free MiB free, $1 MiB are needed: free some, or set KVASIR_CACHE to another disk"
}

# Leaves the source, checked against the pinned digest and commit, in $1.
fetch_llama() {
    local work=$1.part
    rm -rf "$work" && mkdir -p "$work"
    say "downloading llama.cpp's source (35 MB, npm package $npm_package)"
    (cd "$work" && npm pack --silent "$npm_package" >/dev/null 2>"$log") ||
        { tail -n 5 "$log" >&2 && die "could not download $npm_package: is the npm registry reachable? Without it: --llama-source DIR"; }
    local archive=("$work"/*.tgz)
    printf '%s  %s\n' "$npm_sha512" "${archive[0]}" | sha512sum --check --status ||
        die "the download of $npm_package is damaged: its SHA-512 is not the pinned one. Run this again"
    tar -xzf "${archive[0]}" -C "$work" package/llama/gitRelease.bundle || die "could not unpack ${archive[0]}"
    git clone --quiet "$work/package/llama/gitRelease.bundle" "$work/src" 2>"$log" ||
        { tail -n 5 "$log" >&2 && die "could not unpack the git bundle"; }
    [ "$(git -C "$work/src" rev-parse HEAD)" = "$llama_commit" ] || die "the bundle holds another commit than $llama_commit"
    rm -rf "$1" && mv "$work/src" "$1" && rm -rf "$work"
}

build_llama() {
    local dir source start=$SECONDS
    dir=$(llama_dir)
    if [ -e "$dir/ready" ]; then
        say "llama.cpp is built: $dir"
        return 0
    fi
    mkdir -p "$dir" || die "cannot make $dir: set KVASIR_CACHE to a directory you may write"
    need_space 2000 "$dir"
    source=${KVASIR_LLAMA_SOURCE:-$dir/src}
    [ -e "$source/ggml/CMakeLists.txt" ] || fetch_llama "$source"
    [ -e "$dir/src" ] || ln -s "$source" "$dir/src"
    say "building llama.cpp, unmodified, once (about 10 minutes on 2 cores; log: $log)"
    export CCACHE_DIR=$cache/ccache CCACHE_NOHASHDIR=1 CCACHE_BASEDIR=$dir
    cmake -S "$source" -B "$dir/build" -G Ninja "${llama_flags[@]}" \
        -DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache >"$log" 2>&1 ||
        { tail -n 20 "$log" >&2 && die "llama.cpp could not be configured (log: $log)"; }
    cmake --build "$dir/build" --target "${llama_targets[@]}" >>"$log" 2>&1 ||
        { tail -n 20 "$log" >&2 && die "llama.cpp could not be built (log: $log)"; }
    touch "$dir/ready"
    say "llama.cpp is built: $((SECONDS - start)) s"
}

# The tests and `kvasir bench download` compare with nginx. Its program alone is taken out of its Debian package, which
# would start a web server on this machine if it were installed. Without it those tests are skipped.
fetch_nginx() {
    if command -v nginx >/dev/null || [ -x /usr/sbin/nginx ] || [ -x "$cache/nginx/usr/sbin/nginx" ]; then return 0; fi
    local work=$cache/nginx.part
    rm -rf "$work" && mkdir -p "$work"
    if (cd "$work" && apt-get -o APT::Sandbox::User=root -qq download nginx && dpkg -x nginx_*.deb . && rm nginx_*.deb) \
        >"$log" 2>&1 && "$work/usr/sbin/nginx" -v 2>>"$log"; then
        rm -rf "$cache/nginx" && mv "$work" "$cache/nginx"
        say "nginx is unpacked: $cache/nginx"
    else
        rm -rf "$work"
        say "nginx could not be had (log: $log): what needs it is skipped"
    fi
}

mkdir -p "$cache" || die "cannot make the cache $cache: set KVASIR_CACHE to a directory you may write"
log=$cache/setup.log
# Two setups at once would build into each other's directory.
exec 9>"$cache/setup.lock"
flock -w 3600 9 || die "another setup has held $cache/setup.lock for an hour"
install_packages
build_llama
fetch_nginx
