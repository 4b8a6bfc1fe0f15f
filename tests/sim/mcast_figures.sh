#!/bin/sh
# SPDX-License-Identifier: MIT
# mcast_figures.sh SKEIN - RDMC's figures in groups of up to 128: their bars. In
# `make soak` (SKEIN_TEST_ROUNDS) the racks have 64 nodes at most instead of 48.
set -eu
skein=$1
racks=48
[ -z "${SKEIN_TEST_ROUNDS:-}" ] || racks=64
"$skein" sim mcast-scaling --nodes 128
"$skein" sim mcast-first --nodes 48 --twice
"$skein" sim mcast-overlap --nodes 10
"$skein" sim mcast-racks --nodes $racks
"$skein" sim mcast-apt --nodes 16
"$skein" sim mcast-slow-link
"$skein" sim mcast-blocks
