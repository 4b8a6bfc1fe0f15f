#!/bin/sh
# SPDX-License-Identifier: MIT
# lone_call.sh COUNT_COMBINE - what a blocking call of one thread costs in
# instructions at the calling end (docs/measurements/performance.md,
# "Combining"). Counts do not depend on the machine's load; the limit leaves a
# tenth for other compilers.
set -eu
command -v valgrind >/dev/null || {
	echo "valgrind: not installed"
	exit 77
}
program=$1
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# count WAY: instructions a call
count() {
	n=$(valgrind --tool=callgrind --collect-atstart=no \
		--callgrind-out-file=/dev/null --log-file="$log" \
		"$program" "$1" 500) || {
		cat "$log"
		return 1
	}
	all=$(sed -n 's/.*Collected : \([0-9]*\).*/\1/p' "$log")
	echo $((all / n))
}

lone=$(count shared)
echo "lone $lone"
# Nothing was counted: not a callgrind that takes part.
[ "$lone" -gt 500 ]
[ "$lone" -le 2220 ]
