#!/bin/sh
# SPDX-License-Identifier: MIT
# mcast.sh SKEIN - the multicast schedules over verbs: every block, byte by byte,
# from seeds, each twice and the same both times; then the figures' bars, in
# groups of up to 128.
set -eu
skein=$1
for seed in 1 2 3 4 5 6 7 8; do
	"$skein" sim mcast-relay --seed $seed --twice >/dev/null || {
		echo "again by: skein sim mcast-relay --seed $seed --twice"
		exit 1
	}
done
"$skein" sim mcast-scaling --nodes 128
"$skein" sim mcast-engine --nodes 8 --twice
"$skein" sim mcast-algorithms --nodes 5 --twice
"$skein" sim mcast-first --nodes 48 --twice
"$skein" sim mcast-overlap --nodes 10
"$skein" sim mcast-racks --nodes 64
"$skein" sim mcast-apt --nodes 16
"$skein" sim mcast-slow-link
"$skein" sim mcast-blocks
"$skein" sim fuzz mcast-large --seeds 1..20 --twice
"$skein" sim fuzz mcast-large --seeds 1..5 --calm
"$skein" sim fuzz mcast-resume --seeds 1..30 --twice
"$skein" sim fuzz mcast-resume --seeds 1..3 --calm
