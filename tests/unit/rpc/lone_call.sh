#!/bin/sh
# SPDX-License-Identifier: MIT
# lone_call.sh COUNT_COMBINE - what a blocking call of one thread costs in
# instructions at the calling end, on a private connection and on a handle of one
# QP that it has for itself (docs/measurements/performance.md, "Combining"). Counts do not
# depend on the machine's load; the limits leave a seventh for other compilers.
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

private=$(count private)
shared=$(count shared)
echo "private $private, shared $shared, more $((shared - private))"
# Nothing was counted: not a callgrind that takes part.
[ "$private" -gt 500 ]
[ "$private" -le 2010 ]
[ $((shared - private)) -le 210 ]
