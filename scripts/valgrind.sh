#!/bin/bash
# SPDX-License-Identifier: MIT
#
# valgrind.sh [--short] [BUILD] - unit tests under memcheck: what is read before
# it was written, and what is touched that is nobody's. Closes with a line of
# counts, as run-tests.py does. --short: what continuous integration runs.
#
# Leaks are AddressSanitizer's business (make asan), not memcheck's: at its end
# memcheck searches all mappings for pointers, word by word, taking one SIGBUS
# a word behind the end of a file. A device that a killed or forked process
# leaves open maps 1 GiB of address space of a NIC file of some MiB: that is
# 130 million signals, a quarter of an hour.
set -u
cd "$(dirname "$0")/.." || exit 1
short=
[ "${1:-}" != --short ] || { short=1; shift; }
build=${1:-build}

command -v valgrind >/dev/null || {
	echo "valgrind: not installed"
	exit 1
}

# NAME: why it cannot be run so
excluded='
soft/step: single-steps its child, which is valgrind here
soft/order: single-steps its child, which is valgrind here
soft/srq_step: single-steps its child, which is valgrind here
soft/storm: hundreds of processes, each of them valgrind
soft/heir: a death is seen by pidfds, which valgrind 3.19 does not know
soft/ud_srq_death: hundreds of processes, each of them valgrind
soft/ud_death: hundreds of processes, each of them valgrind
soft/corrupt: the peer dies of its own nonsense, and valgrind with it
soft/death: counts mappings, of which valgrind makes its own
soft/many: thousands of senders on one simulated core
soft/copy: races two threads, which valgrind runs one at a time
conn/hostile: valgrind lets descriptors in messages pass the limit
conn/pair: busy-waits for another thread, which runs at its turn only
conn/pair_mem: busy-waits for another thread, which runs at its turn only
conform/soft: minutes of random programs, at a fiftieth of the speed
conn/scarce: timers end while the other thread waits for its turn
env/engine_threads: races threads, which valgrind runs one at a time
rpc/live: a minute of calls, at a fiftieth of the speed
rpc/schedules: a million schedules, at a fiftieth of the speed
rpc/layout: a million layouts, at a fiftieth of the speed
rpc/msg: a million messages, at a fiftieth of the speed
kv_value: a million values, at a fiftieth of the speed
'
in_short='base/bytes base/conf base/fmt base/heap base/hist base/list base/prng
env/env env/wait env/mem conn/handshake conn/parts conn/events conn/stop
rpc/client rpc/event soft/verbs soft/errors soft/limits soft/park soft/cq
soft/meet soft/orphan kv_proto kv_server'

names=()
all=' '
while read -r name; do
	name=${name##* / }
	all+="$name "
	reason=$(grep "^$name: " <<<"$excluded")
	if [ -n "$reason" ]; then
		[ -n "$short" ] || echo "not run: $reason"
	elif [ -z "$short" ] || [[ " ${in_short//$'\n'/ } " == *" $name "* ]]; then
		names+=("$name")
	fi
done < <(meson test -C "$build" --list --suite unit --no-suite seeds 2>/dev/null |
	grep -v ' can fail\|symbols')

for name in $in_short $(sed -n 's/^\([^ ]*\): .*/\1/p' <<<"$excluded"); do
	[[ $all == *" $name "* ]] || {
		echo "valgrind.sh names $name, and no test has that name" >&2
		exit 1
	}
done

[ -n "$short" ] || tests/sim/valgrind.sh "$build/tools/skein" 2 3 4 5 || exit 1
export SKEIN_TEST_VALGRIND=1
exec scripts/run-tests.py --build "$build" --timeout-multiplier 10 \
	--wrapper "valgrind -q --leak-check=no --fair-sched=yes \
--error-exitcode=99" "${names[@]}"
