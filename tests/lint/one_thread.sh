#!/bin/bash
# SPDX-License-Identifier: MIT
#
# one_thread.sh [--not] PROGRAM... - none of the programs refers to anything
# that starts a thread or a process, or loads code that might. --not: each of
# them does (the self-test). Exit status 0 only then.
set -u
want=1
[ "${1:-}" != --not ] || { want=0; shift; }
[ $# -gt 0 ] || { echo "no program"; exit 1; }
starts='pthread_create|thrd_create|timer_create|v?fork|clone3?|posix_spawnp?'
starts+='|popen|system|dlopen'
wrong=0
for program; do
	symbols=$(nm -uD "$program")
	[ -n "$symbols" ] || {
		echo "$program: no symbols to read"
		exit 1
	}
	found=$(grep -oE " U ($starts)(@.*)?\$" <<<"$symbols")
	if [ $want = 1 ] && [ -n "$found" ]; then
		echo "$program is said to be one thread, and refers to$found"
		wrong=1
	elif [ $want = 0 ] && [ -z "$found" ]; then
		echo "$program: its threads are not noticed"
		wrong=1
	fi
done
exit $wrong
