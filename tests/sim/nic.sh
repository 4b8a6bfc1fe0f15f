#!/bin/sh
# SPDX-License-Identifier: MIT
# nic.sh SKEIN MODELS - which NIC a scenario has: a name, a file, other values;
# and what is refused.
set -eu
skein=$1
models=$2
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

hash() {
	"$skein" sim inbound-outbound --json "$@" |
		sed -n 's/.*"event_log_hash": "\(.*\)".*/\1/p'
}

refused() {
	want=$1
	shift
	if "$skein" sim "$@" >"$tmp/out" 2>"$tmp/err"; then
		echo "not refused: $*"
		exit 1
	fi
	grep -q -- "$want" "$tmp/err" || {
		echo "$*: does not say \"$want\":"
		cat "$tmp/err"
		exit 1
	}
}

own=$(hash)
[ -n "$own" ]
[ "$(hash --nic connectx3)" = "$own" ]
[ "$(hash --nic "$models/connectx3.conf")" = "$own" ]
[ "$(hash --nic connectx4)" != "$own" ]
[ "$(hash --set rx=300)" != "$own" ]
[ "$(hash --set rx=300)" = "$(hash --nic connectx3 --set rx=300,tx=100)" ]

refused "neither a model's name nor a file" inbound-outbound --nic connectx9
refused "no_such" inbound-outbound --set no_such=1
refused "not NAME=VALUE" inbound-outbound --set rx
refused "units" inbound-outbound --set units=0
refused "has NICs of its own" calibrate --nic connectx4
grep -v '^rx =' "$models/connectx3.conf" >"$tmp/short.conf"
refused "rx is missing" inbound-outbound --nic "$tmp/short.conf"
