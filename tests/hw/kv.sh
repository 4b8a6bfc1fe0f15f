#!/bin/bash
# SPDX-License-Identifier: MIT
#
# kv.sh - the key-value server and YCSB's workloads between the two devices,
# small enough for an emulated machine. Every value is verified by the client.
set -u
out=$(mktemp)
SKEIN_DEVICE=$SKEIN_TEST_DEVICE tools/skein kv serve --insecure --listen 10.99.0.1:0 \
	>"$out" 2>&1 &
server=$!
trap 'kill $server 2>/dev/null; wait $server; cat "$out"; rm -f "$out"' EXIT
# The kernel tells nobody that a file has grown: look until it has, or until
# the server is gone. The lane's own limit ends a server that says nothing.
while :; do
	address=$(sed -n 's/.*listening on \([^ ]*\) over.*/\1/p' "$out")
	[ -z "$address" ] || break
	kill -0 $server 2>/dev/null || exit 1
	sleep 0.1
done
SKEIN_DEVICE=$SKEIN_TEST_DEVICE2 tools/skein ycsb --server "$address" \
	--transport skein -w a,b,c,e -n 100 -o 100 -t 1 | tee "$out.client"
status=${PIPESTATUS[0]}
grep -q 'wrong or missing: 0$' "$out.client" || status=1
rm -f "$out.client"
exit "$status"
