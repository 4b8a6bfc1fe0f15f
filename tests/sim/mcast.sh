#!/bin/sh
# SPDX-License-Identifier: MIT
# mcast.sh SKEIN - the multicast schedules over verbs: every block, byte by byte,
# from seeds, each twice and the same both times. In `make soak`
# (SKEIN_TEST_ROUNDS) four times as many seeds.
set -eu
skein=$1
many=${SKEIN_TEST_ROUNDS:+4}
for seed in $(seq $((2 * ${many:-1}))); do
	"$skein" sim mcast-relay --seed "$seed" --twice >/dev/null || {
		echo "again by: skein sim mcast-relay --seed $seed --twice"
		exit 1
	}
done
"$skein" sim mcast-engine --nodes 8 --twice
"$skein" sim mcast-algorithms --nodes 5 --twice
"$skein" sim fuzz mcast-large --seeds 1..$((5 * ${many:-1})) --twice
"$skein" sim fuzz mcast-large --seeds 1..5 --no-faults
"$skein" sim fuzz mcast-resume --seeds 1..$((8 * ${many:-1})) --twice
"$skein" sim fuzz mcast-resume --seeds 1..3 --no-faults
# A scenario whose size is fixed refuses another one.
for size in "mcast-blocks --nodes 5" "rrc-ring --ops 5" \
	"fuzz kv --seeds 1..1 --threads 2"; do
	# shellcheck disable=SC2086 # words
	if "$skein" sim $size 2>/dev/null; then
		echo "taken: $size"
		exit 1
	fi
done
