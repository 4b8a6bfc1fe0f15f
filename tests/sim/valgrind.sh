#!/bin/sh
# SPDX-License-Identifier: MIT
# valgrind.sh SKEIN SEED... - scenarios under memcheck: nothing is read before
# it was written, and the run is the one that it is without: the same hash.
set -eu
command -v valgrind >/dev/null || {
	echo "valgrind: not installed"
	exit 77
}
skein=$1
shift
hash() {
	sed -n 's/.*"event_log_hash": *"\([0-9a-f]*\)".*/\1/p'
}
for seed; do
	for name in rpc-basic kv rpc-handles; do
		bare=$("$skein" sim "$name" --seed "$seed" --json | hash)
		checked=$(valgrind -q --leak-check=no --error-exitcode=99 \
			"$skein" sim "$name" --seed "$seed" --json) || {
			echo "$name, seed $seed: memcheck has complaints"
			exit 1
		}
		checked=$(echo "$checked" | hash)
		echo "$name, seed $seed: $bare"
		[ -n "$bare" ] && [ "$bare" = "$checked" ] || {
			echo "another run under valgrind: $checked"
			exit 1
		}
	done
done
