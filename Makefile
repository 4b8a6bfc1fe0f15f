# A thin front: Meson does the work. README.md has the two commands that a
# newcomer needs, docs/development.md the rest. `make help` lists them.
BUILD ?= build
PREFIX ?= /usr/local
# Options for meson setup, on the first build of a folder.
MESON_ARGS ?=
# Arguments for the tests: make test T="--suite lint"
T ?=
# Arguments for the comparison: make bench-peers P="--json --rounds 3"
P ?=

# How many seeds of harsh mode `make soak` takes.
HARSH_SEEDS ?= 20

SHELL := /bin/bash

.PHONY: all build help demo test test-hw asan tsan valgrind lint format \
	fuzz-smoke bench bench-peers bench-cp bench-mcast soak docs sim-plots install clean

all: build

help:
	@sed -n 's/^##\([a-z-]*\): */\1\t/p' Makefile | column -t -s "$$(printf '\t')"

##build: compile everything into $(BUILD)/
$(BUILD)/build.ninja:
	meson setup $(BUILD) --prefix $(PREFIX) $(MESON_ARGS)

build: $(BUILD)/build.ninja
	ninja -C $(BUILD)

##demo: the main job, end to end, on this machine
demo:
	scripts/deps.sh build
	$(MAKE) build
	scripts/demo.sh $(BUILD)

##test: every test that needs no special hardware (and less than 20 GiB)
test:
	scripts/deps.sh build test
	$(MAKE) build
	scripts/run-tests.py --build $(BUILD) --no-suite big $(T)

# Of the sanitized build only what the lane runs of it is compiled.
##test-hw: the end-to-end tests on the kernel's RDMA stack, in a VM
test-hw:
	scripts/deps.sh build test hw
	$(MAKE) build
	[ -f build-asan/build.ninja ] || meson setup build-asan \
		--buildtype=debugoptimized \
		-Db_sanitize=address,undefined -Db_lundef=false
	ninja -C build-asan $$(sed -n 's/^# asan: //p' tests/hw/tests.list | \
		sed 's|[^ ]*|tests/hw/test_&|g')
	SKEIN_BUILD_ASAN=build-asan tests/hw/run.sh $(BUILD)

# Models are checked by spin: no sanitizer sees them.
##asan: unit and end-to-end tests under AddressSanitizer and UBSan
asan:
	scripts/deps.sh build test
	$(MAKE) build BUILD=build-asan MESON_ARGS="--buildtype=debugoptimized \
		-Db_sanitize=address,undefined -Db_lundef=false"
	ASAN_OPTIONS=detect_leaks=1:abort_on_error=1 \
	UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
	scripts/run-tests.py --build build-asan --no-suite lint --no-suite soak \
		--no-suite model --timeout-multiplier 4 $(T)

# die_after_fork=0: tests fork children that start threads of their own. A
# simulated world is one thread; what the suite one-thread has cannot start
# another, which a test proves (tests/lint/one_thread.sh). All of it runs in the
# plain and in the asan lane.
##tsan: the tests of threaded code under ThreadSanitizer
tsan:
	scripts/deps.sh build test
	$(MAKE) build BUILD=build-tsan MESON_ARGS="--buildtype=debugoptimized \
		-Db_sanitize=thread -Db_lundef=false"
	@echo "not under ThreadSanitizer, one thread each:" \
		$$(meson test -C build-tsan --list --suite one-thread \
		2>/dev/null | sed 's|.* / ||')
	TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:die_after_fork=0 \
	scripts/run-tests.py --build build-tsan --no-suite lint --no-suite soak \
		--no-suite model --no-suite sim --no-suite one-thread \
		--timeout-multiplier 6 $(T)

##valgrind: unit tests under memcheck
valgrind:
	scripts/deps.sh build test
	$(MAKE) build
	scripts/valgrind.sh $(BUILD)

##lint: format, layers, globals, lengths, man pages, cppcheck, clang-tidy
lint:
	scripts/deps.sh build test lint
	$(MAKE) build
	scripts/lint/run $(BUILD)

##format: rewrite all C files by .clang-format
format:
	scripts/deps.sh lint
	scripts/lint/format.py --fix

##fuzz-smoke: every fuzzer for FUZZ_SECONDS (20)
fuzz-smoke:
	scripts/deps.sh build test lint
	scripts/fuzz-smoke.sh

##bench: the benchmarks; tables, and JSON beside them
bench:
	scripts/deps.sh build
	$(MAKE) build
	bench/run.sh $(BUILD)

# gRPC's own pair is compiled here and nowhere else.
##bench-peers: Skein beside sockets, UCX, gRPC and redis (< 5 minutes)
bench-peers:
	scripts/deps.sh build peers
	$(MAKE) build
	bench/peers/build.sh $(BUILD)
	bench/peers/run.py $(P) $(BUILD)

##bench-cp: skein cp beside nc, rsync and scp, 1 GiB to 7 directories on tmpfs
bench-cp:
	scripts/deps.sh build peers
	$(MAKE) build
	bench/cp.py $(P) $(BUILD)

##bench-mcast: a multicast from memory to memory beside MPI_Bcast
bench-mcast:
	scripts/deps.sh build peers
	$(MAKE) build
	bench/mcast/build.sh $(BUILD)
	bench/mcast/run.py $(P) $(BUILD)

##soak: the tests of failure, 1,000 rounds
soak:
	scripts/deps.sh build test
	$(MAKE) build
	SKEIN_TEST_ROUNDS=1000 SKEIN_TEST_HARSH_SEEDS=$(HARSH_SEEDS) \
		scripts/run-tests.py --build $(BUILD) --suite soak \
		--suite seeds --timeout-multiplier 40 $(T)

##docs: man pages from Markdown (the committed copies)
docs:
	scripts/deps.sh docs
	scripts/man-pages.sh

##sim-plots: the simulator's curves (docs/img) and tables
sim-plots:
	scripts/deps.sh build plots
	$(MAKE) build
	scripts/sim-plots.sh $(BUILD)/tools/skein
	scripts/mcast-plots.sh $(BUILD)/tools/skein
	scripts/flock-plots.sh $(BUILD)/tools/skein

##install: into PREFIX (/usr/local), or below DESTDIR
install: build
	meson install -C $(BUILD) --no-rebuild

##clean: remove all build folders
clean:
	rm -rf build build-asan build-tsan build-fuzz
