# A thin front: Meson does the work. README.md has the two commands that a
# newcomer needs, docs/development.md the rest. `make help` lists them.
# The build folder; asan, tsan and fuzz-smoke have theirs beside it.
BUILD ?= build
# Where to install; a build folder remembers what it was last told.
PREFIX ?= /usr/local
# Options for meson setup, on the first build of a folder.
export MESON_ARGS ?=
# Arguments for the tests: make test T="--suite lint"
T ?=
# Arguments for the comparison: make bench-peers P="--json --rounds 3"
P ?=

# Options for the unit tests under memcheck: make valgrind V=--short
V ?=

# How many seeds of harsh mode `make test-rounds` takes.
HARSH_SEEDS ?= 20
# A part of a sanitizer's tests: make asan SHARE=0/2
SHARE ?= 0/1

SHELL := /bin/bash

# Compiles; $(BUILD)'s PREFIX changes only when one is given.
build := scripts/build.sh
configure := scripts/build.sh --configure
prefix := $(if $(filter-out file,$(origin PREFIX)),"-Dprefix=$(PREFIX)")
# Half the time to compile of -O2 -g, tests run as fast, and stacks have lines.
# Which warnings there are hangs on the optimization: the plain build has them.
sanitized := -Doptimization=1 -Ddebug=false -Dc_args=-g1 -Dwarning_level=0 \
	-Dwerror=false -Db_lundef=false -Dtests=true
address := $(sanitized) -Db_sanitize=address,undefined
thread := $(sanitized) -Db_sanitize=thread

.PHONY: all build help demo test test-rounds test-hw asan tsan valgrind lint format \
	fuzz-smoke bench bench-peers bench-grpc-kv bench-cp bench-mcast soak docs sim-plots install clean

all: build

help:
	@awk -F': *' '/^##[a-z]/ { printf "%-12s %s\n", substr($$1, 3), \
		substr($$0, length($$1) + 3) }' Makefile

# A folder that has tests and benchmarks (make test, make bench) keeps them.
##build: compile the library, the tool and the examples into $(BUILD)/
build:
	$(build) "$(BUILD)" $(prefix)

##demo: the main job, end to end, on this machine
demo:
	scripts/deps.sh build
	$(build) "$(BUILD)" $(prefix)
	scripts/demo.sh "$(BUILD)"

# Without T: models, figures, the same programs in harsh mode, the tests that do
# many rounds, and what wants 20 GiB of memory are run by make soak.
daily := --no-suite model --no-suite figures --no-suite seeds --no-suite harsh \
	--no-suite soak --no-suite big

##test: the tests that need no special hardware; T="--suite model" chooses
test:
	scripts/deps.sh build test
	$(configure) "$(BUILD)" -Dtests=true
	scripts/run-tests.py --build "$(BUILD)" --compile $(or $(T),$(daily))

# Of the sanitized build only what the lane runs of it is compiled.
##test-hw: the end-to-end tests on the kernel's RDMA stack, in a VM
test-hw:
	scripts/deps.sh build test hw
	$(build) "$(BUILD)" -Dtests=true
	$(build) "$(BUILD)-asan" $(address) \
		$$(sed -n 's/^# asan: //p' tests/hw/tests.list | \
		sed 's|[^ ]*|tests/hw/test_&|g')
	SKEIN_BUILD_ASAN="$(BUILD)-asan" tests/hw/run.sh "$(BUILD)"

# What a sanitizer's lane does not run, and why: the only place. The names follow
# when the lane runs.
# $(call left-out,FOLDER,SUITE,WHY)
left-out = @echo "not under a sanitizer: $(2): $(3):" \
	$$(meson test -C "$(1)" --no-rebuild --list --suite $(2) 2>/dev/null | \
	sed 's|.* / ||' | paste -sd, | sed 's|,|, |g')
figures := figures of models and of other programs, in one thread or none of ours
harsh := the programs of e2e again; harsh mode itself has unit tests
whole := rounds and seeds, which make test-rounds runs

# Models are checked by spin: no sanitizer sees them.
##asan: unit and end-to-end tests under AddressSanitizer and UBSan
asan:
	scripts/deps.sh build test
	$(configure) "$(BUILD)-asan" $(address)
	$(call left-out,$(BUILD)-asan,figures,$(figures))
	$(call left-out,$(BUILD)-asan,soak,$(whole))
	$(call left-out,$(BUILD)-asan,harsh-e2e,$(harsh))
	SKEIN_TEST_TIME_SCALE=4 ASAN_OPTIONS=detect_leaks=1:abort_on_error=1 \
	UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
	scripts/run-tests.py --build "$(BUILD)-asan" --compile --share $(SHARE) \
		--no-suite lint --no-suite soak --no-suite model --no-suite figures \
		--no-suite harsh-e2e --timeout-multiplier 4 $(T)

# die_after_fork=0: tests fork children that start threads of their own. A
# simulated world is one thread; what the suite one-thread has cannot start
# another, which a test proves (tests/lint/one_thread.sh). All of it runs in the
# plain and in the asan lane.
##tsan: the tests of threaded code under ThreadSanitizer
tsan:
	scripts/deps.sh build test
	$(configure) "$(BUILD)-tsan" $(thread)
	$(call left-out,$(BUILD)-tsan,figures,$(figures))
	$(call left-out,$(BUILD)-tsan,soak,$(whole))
	$(call left-out,$(BUILD)-tsan,one-thread,one thread each)
	$(call left-out,$(BUILD)-tsan,harsh-e2e,$(harsh))
	SKEIN_TEST_TIME_SCALE=6 \
	TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:die_after_fork=0 \
	scripts/run-tests.py --build "$(BUILD)-tsan" --compile --share $(SHARE) \
		--no-suite lint --no-suite soak --no-suite model --no-suite sim \
		--no-suite one-thread --no-suite figures --no-suite harsh-e2e \
		--timeout-multiplier 6 $(T)

##valgrind: unit tests under memcheck
valgrind:
	scripts/deps.sh build test
	$(build) "$(BUILD)" -Dtests=true
	scripts/valgrind.sh $(V) "$(BUILD)"

##lint: format, layers, globals, lengths, man pages, cppcheck, clang-tidy
lint:
	scripts/deps.sh build test lint
	$(build) "$(BUILD)" -Dtests=true
	scripts/lint/run "$(BUILD)"

##format: rewrite all C files by .clang-format
format:
	scripts/deps.sh lint
	scripts/lint/format.py --fix

##fuzz-smoke: every fuzzer for FUZZ_SECONDS (20)
fuzz-smoke:
	scripts/deps.sh build test lint
	scripts/fuzz-smoke.sh "$(BUILD)-fuzz"

##bench: the benchmarks; tables, and JSON beside them
bench:
	scripts/deps.sh build
	$(build) "$(BUILD)" -Dbenches=true
	bench/run.sh "$(BUILD)"

# gRPC's own pair is compiled here and nowhere else.
##bench-peers: Skein beside sockets, UCX, gRPC and redis (< 5 minutes)
bench-peers:
	scripts/deps.sh build peers
	$(build) "$(BUILD)" -Dbenches=true
	bench/peers/build.sh "$(BUILD)"
	bench/peers/run.py $(P) "$(BUILD)"

##bench-grpc-kv: YCSB A to F over a gRPC key-value service, on streams and on TCP
bench-grpc-kv:
	scripts/deps.sh build peers
	$(build) "$(BUILD)"
	bench/grpc-kv/compare.py $(P) "$(BUILD)"

##bench-cp: skein cp beside nc, rsync and scp, 1 GiB to 7 directories on tmpfs
bench-cp:
	scripts/deps.sh build peers
	$(build) "$(BUILD)" -Dbenches=true
	bench/cp.py $(P) "$(BUILD)"

##bench-mcast: a multicast from memory to memory beside MPI_Bcast
bench-mcast:
	scripts/deps.sh build peers
	$(build) "$(BUILD)" -Dbenches=true
	bench/mcast/build.sh "$(BUILD)"
	bench/mcast/run.py $(P) "$(BUILD)"

##soak: all tests there are, in all lanes; hours, as root
soak:
	.ci/run soak

##test-rounds: the tests of failure, 1,000 rounds
test-rounds:
	scripts/deps.sh build test
	$(build) "$(BUILD)" -Dtests=true
	SKEIN_TEST_ROUNDS=1000 SKEIN_TEST_HARSH_SEEDS=$(HARSH_SEEDS) \
		scripts/run-tests.py --build "$(BUILD)" --suite soak \
		--suite seeds --suite parts --suite big --timeout-multiplier 40 $(T)

##docs: man pages from Markdown (the committed copies)
docs:
	scripts/deps.sh docs
	scripts/man-pages.sh

##sim-plots: the simulator's curves (docs/img) and tables
sim-plots:
	scripts/deps.sh build plots
	$(build) "$(BUILD)"
	scripts/sim-plots.sh "$(BUILD)/tools/skein"
	scripts/mcast-plots.sh "$(BUILD)/tools/skein"
	scripts/flock-plots.sh "$(BUILD)/tools/skein"
	scripts/rfrpc-plots.sh "$(BUILD)/tools/skein"
	scripts/rrc-plots.sh "$(BUILD)/tools/skein"

# The loader finds a library in a folder of the system's only by its cache. Of a log
# that root wrote a user may not write the next one.
##install: into PREFIX (/usr/local), or below DESTDIR
install:
	$(build) "$(BUILD)" $(prefix)
	@rm -f "$(BUILD)/meson-logs/install-log.txt"
	to="$(DESTDIR)"; DESTDIR=$${to:+$$(realpath -ms "$$to")} \
		meson install -C "$(BUILD)" --no-rebuild || { [ "$$(id -u)" = 0 ] || \
		echo "make install: may $$(id -un) write there? sudo make install" >&2; \
		exit 1; }
	@[ -n "$(DESTDIR)" ] || [ "$$(id -u)" != 0 ] || ldconfig

##clean: remove all build folders
clean:
	rm -rf "$(BUILD)" "$(BUILD)-asan" "$(BUILD)-tsan" "$(BUILD)-fuzz"
