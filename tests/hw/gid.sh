#!/bin/bash
# SPDX-License-Identifier: MIT
#
# gid.sh - test_gid with a device of its own, whose addresses it may change:
# rxe9 on one end of a veth pair.
set -eu
ip link add vg type veth peer name vh
trap 'rdma link delete rxe9; ip link del vg' EXIT
ip addr add 10.98.0.1/24 dev vg
ip link set vg up
ip link set vh up
rdma link add rxe9 type rxe netdev vg
SKEIN_TEST_DEVICE=verbs:rxe9 tests/hw/test_gid
