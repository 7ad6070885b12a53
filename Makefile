# make demo    sets everything up and runs the main job on a small real model
# make test    sets everything up and passes the tests
# make build   only builds: build/bin/kvasir, build/bin/libggml-kvasir.so
# make check   formatting, sanitizer runs, fuzzers (longer)
# make tidy    clang-tidy over src/ (longer still)

.PHONY: demo test build setup check tidy clean
.DEFAULT_GOAL := build

setup:
	@scripts/setup.sh

build: setup
	@scripts/build.sh build

demo: build
	@build/bin/kvasir demo

test: build
	@scripts/test.sh

check: setup
	@scripts/check.sh

tidy: setup
	@scripts/tidy.sh

clean:
	rm -rf build build-*
