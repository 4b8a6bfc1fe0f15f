#!/bin/bash
# SPDX-License-Identifier: MIT
#
# fuzz-smoke.sh [BUILD] - every fuzzer of tests/fuzz for FUZZ_SECONDS (20) each,
# under AddressSanitizer and UBSan, from its committed corpus; as many at once as
# there are cores. BUILD (build-fuzz) is compiled first; new inputs and crashes
# land in it. Ends with one line of counts.
set -u
cd "$(dirname "$0")/.." || exit 1
build=${1:-build-fuzz}
seconds=${FUZZ_SECONDS:-20}
cc=clang-14
command -v $cc >/dev/null || cc=clang
# Meson takes ccache by itself only for the compiler that it finds itself.
! command -v ccache >/dev/null || cc="ccache $cc"

fuzzers=()
for source in tests/fuzz/fuzz_*.c; do
	fuzzers+=("${source%.c}")
done
# Of this build nothing else is run.
CC=$cc scripts/build.sh "$build" -Dfuzz=true -Dbuildtype=debugoptimized \
	-Db_sanitize=address,undefined -Db_lundef=false "${fuzzers[@]}" || exit 1
rm -f "$build"/says-*

# fuzz PROGRAM: its line, and its output when it has found something.
fuzz() {
	local name=${1##*/fuzz_}
	local new=$build/corpus/$name log=$build/fuzz-$name.log

	mkdir -p "$new"
	if UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 "$build/$1" \
		-max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 \
		-artifact_prefix="$build/$name-" -print_final_stats=1 \
		"$new" "tests/fuzz/corpus/$name" >"$log" 2>&1; then
		echo "fuzz $name: $(awk '/number_of_executed_units/ {print $2}' \
			"$log") runs, nothing found"
		return 0
	fi
	echo "fuzz $name: FAILED"
	tail -40 "$log"
	return 1
}

# All take the same time: one batch after another.
cores=$(nproc)
for i in "${!fuzzers[@]}"; do
	says=$build/says-${fuzzers[i]##*/fuzz_}
	{ fuzz "${fuzzers[i]}" >"$says"; echo $? >"$says.rc"; } &
	[ $(((i + 1) % cores)) != 0 ] || wait
done
wait
passed=0
failed=0
for fuzzer in "${fuzzers[@]}"; do
	says=$build/says-${fuzzer##*/fuzz_}
	cat "$says"
	if [ "$(cat "$says.rc")" = 0 ]; then
		passed=$((passed + 1))
	else
		failed=$((failed + 1))
	fi
done
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ] && [ $passed != 0 ]
