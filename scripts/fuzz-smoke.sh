#!/bin/bash
# SPDX-License-Identifier: MIT
#
# fuzz-smoke.sh - every fuzzer of tests/fuzz for FUZZ_SECONDS (20) each, under
# AddressSanitizer and UBSan, from its committed corpus. New inputs and crashes
# land in build-fuzz/. Ends with one line of counts.
set -u
cd "$(dirname "$0")/.." || exit 1
seconds=${FUZZ_SECONDS:-20}
cc=clang-14
command -v $cc >/dev/null || cc=clang

[ -f build-fuzz/build.ninja ] ||
	CC=$cc meson setup build-fuzz -Dfuzz=true --buildtype=debugoptimized \
		-Db_sanitize=address,undefined -Db_lundef=false || exit 1
ninja -C build-fuzz || exit 1

passed=0
failed=0
for fuzzer in build-fuzz/tests/fuzz/fuzz_*; do
	[ -f "$fuzzer" ] && [ -x "$fuzzer" ] || continue
	name=${fuzzer##*/fuzz_}
	new=build-fuzz/corpus/$name
	log=build-fuzz/fuzz-$name.log
	mkdir -p "$new"
	if UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 "$fuzzer" \
		-max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 \
		-artifact_prefix="build-fuzz/$name-" -print_final_stats=1 \
		"$new" "tests/fuzz/corpus/$name" >"$log" 2>&1; then
		passed=$((passed + 1))
		echo "fuzz $name: $(awk '/number_of_executed_units/ {print $2}' \
			"$log") runs, nothing found"
	else
		failed=$((failed + 1))
		echo "fuzz $name: FAILED"
		tail -40 "$log"
	fi
done
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ] && [ $passed != 0 ]
