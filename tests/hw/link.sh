#!/bin/bash
# SPDX-License-Identifier: MIT
#
# link.sh - test_link.py with devices of its own, the cable of which it may pull: rxe7 on
# wa and rxe8 on wb, each a veth pair into a bridge. Taking the bridge's end of a
# pair down is what a switch does: wa loses its carrier and keeps its addresses,
# routes and neighbours. The routes are as in scripts/rdma-vm/init.
set -eu
finish() {
	rdma link delete rxe7
	rdma link delete rxe8
	for i in wa wb wbr; do
		ip link del $i
	done
	ip rule del pref 5
	ip rule del pref 6
}
trap finish EXIT
ip link add wbr type bridge stp_state 0
ip link set wbr up
for i in wa wb; do
	ip link add $i type veth peer name ${i}m
	ip link set ${i}m master wbr up
done
ip addr add 10.96.0.1/24 dev wa
ip addr add 10.96.0.2/24 dev wb
for i in wa wb; do
	ip link set $i mtu 4200 up
	ip link set ${i}m mtu 4200
	echo 1 >/proc/sys/net/ipv4/conf/$i/accept_local
	echo 0 >/proc/sys/net/ipv4/conf/$i/rp_filter
	ip rule add pref 1 iif $i lookup local
done
ip neigh add 10.96.0.2 dev wa nud permanent \
	lladdr "$(cat /sys/class/net/wb/address)"
ip neigh add 10.96.0.1 dev wb nud permanent \
	lladdr "$(cat /sys/class/net/wa/address)"
ip route add 10.96.0.2/32 dev wa src 10.96.0.1 table 101
ip route add 10.96.0.1/32 dev wb src 10.96.0.2 table 101
ip rule add pref 5 from 10.96.0.1 to 10.96.0.2 lookup 101
ip rule add pref 6 from 10.96.0.2 to 10.96.0.1 lookup 101
rdma link add rxe7 type rxe netdev wa
rdma link add rxe8 type rxe netdev wb
SKEIN_TEST_DEVICE=verbs:rxe7 SKEIN_TEST_DEVICE2=verbs:rxe8 \
	SKEIN_TEST_HOST=10.96.0.1 python3 -B "$SRC/tests/hw/test_link.py"
