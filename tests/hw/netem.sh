#!/bin/bash
# SPDX-License-Identifier: MIT
#
# netem.sh LOSS COMMAND.. - COMMAND while the wire between the two devices loses
# that much of both ways' packets, and a check that it did.
set -u
loss=$1
shift
for i in va vb; do
	tc qdisc add dev $i root netem loss "$loss" || exit 1
done
"$@"
status=$?
lost=0
for i in va vb; do
	n=$(tc -s qdisc show dev $i | sed -n 's/.*(dropped \([0-9]*\),.*/\1/p')
	lost=$((lost + n))
	tc qdisc del dev $i root
done
echo "$lost packets lost"
[ "$lost" -gt 0 ] || exit 1
exit "$status"
