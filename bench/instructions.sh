#!/bin/bash
# SPDX-License-Identifier: MIT
#
# instructions.sh [--json] [BUILD] - instructions of one operation through the
# device and of one call on either side, with results that are replied and that
# are fetched, counted by callgrind; and the server's, fetch over reply. Counts do
# not depend on the machine's mood, nor on what else it runs.
set -eu
json=0
[ "${1:-}" = --json ] && { json=1; shift; }
build=${1:-build}
ops=2000
device=${SKEIN_DEVICE:-soft}
export SKEIN_DEVICE=$device SKEIN_RPC_RETURN=reply

command -v valgrind >/dev/null || {
	echo "instructions.sh: valgrind is missing: scripts/deps.sh test" >&2
	exit 77
}
log=$(mktemp)
trap 'rm -f "$log" "$log".*' EXIT

# count PROGRAM ARG.. : instructions of one operation
count() {
	local n total
	n=$(valgrind --tool=callgrind --collect-atstart=no \
		--callgrind-out-file=/dev/null --log-file="$log.%p" \
		"$build/bench/$@" "$ops") || {
		echo "instructions.sh: $* failed under callgrind:" >&2
		tail -n 5 "$log".* >&2
		return 1
	}
	# the child of count_post collects nothing
	total=$(sed -n 's/^==[0-9]*== Collected : \([0-9]*\).*/\1/p' "$log".* |
		sort -n | tail -1)
	rm -f "$log".*
	awk "BEGIN { printf \"%.1f\", $total / $n }"
}

names=() values=()
note() {
	names+=("$1")
	values+=("$2")
	[ $json = 1 ] || printf '%-36s %10s\n' "$1" "$2"
}

add() {
	local name=$1
	shift
	value=$(count "$@")
	note "$name" "$value"
}

[ $json = 1 ] || printf '%-36s %10s\n' "on $device" instructions
add post_write_8 count_post write 8 post
add post_and_poll_write_8 count_post write 8 all
add post_write_64 count_post write 64 post
add post_send_64 count_post send 64 post
add post_read_64 count_post read 64 post
if [ -x "$build/bench/count_rpc" ]; then
	for batch in 1 8; do
		for side in client server; do
			SKEIN_RPC_RETURN=reply
			add rpc_64_batch_${batch}_$side \
				count_rpc $side 64 $batch
		done
		reply=$value
		SKEIN_RPC_RETURN=fetch
		add rpc_64_fetch_batch_${batch}_server \
			count_rpc server 64 $batch
		name=fetch_server_batch_$batch
		[ $batch = 1 ] && name=fetch_server_lone
		note $name "$(awk "BEGIN { printf \"%.3f\", $value / $reply }")"
	done
fi
if [ $json = 1 ]; then
	printf '{"device": "%s"' "$device"
	for i in "${!names[@]}"; do
		printf ', "%s": %s' "${names[i]}" "${values[i]}"
	done
	echo '}'
fi
